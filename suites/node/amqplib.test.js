// amqplib: the AMQP client of Node, on which most others there stand.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import amqplib from "amqplib";

const WAIT_MS = 20_000;
const URL = `amqp://guest:guest@${process.env.SUITE_AMQP}`;
const fresh = (words) => `${words}-${randomUUID().slice(0, 8)}`;

async function until(what, holds) {
  const deadline = Date.now() + WAIT_MS;
  for (;;) {
    const found = await holds();
    if (found) return found;
    assert.ok(Date.now() < deadline, `not in time: ${what}`);
    await sleep(20);
  }
}

/** A check with a connection and a channel that confirms. */
function check(name, work) {
  test(name, async () => {
    const connection = await amqplib.connect(URL);
    connection.on("error", () => {});
    try {
      const channel = await connection.createConfirmChannel();
      channel.on("error", () => {});
      await work(channel, connection);
    } finally {
      await connection.close();
    }
  });
}

async function collect(channel, queue, options = {}) {
  const messages = [];
  const { consumerTag } = await channel.consume(queue, (message) => messages.push(message), options);
  return { messages, consumerTag };
}

const bodies = (messages) => messages.map((message) => message.content.toString());

check("everything that was confirmed is consumed once and in order", async (channel) => {
  const { queue } = await channel.assertQueue(fresh("orders"), { durable: true });
  for (let number = 0; number < 500; number++) channel.sendToQueue(queue, Buffer.from(String(number)), { persistent: true });
  await channel.waitForConfirms();
  await channel.prefetch(20);
  const seen = [];
  const { consumerTag } = await channel.consume(queue, (message) => {
    seen.push(message.content.toString());
    channel.ack(message);
  });
  await until("500 messages", () => seen.length === 500);
  assert.deepEqual(seen, Array.from({ length: 500 }, (_, number) => String(number)));
  await channel.cancel(consumerTag);
  assert.equal((await channel.checkQueue(queue)).messageCount, 0);
  await channel.deleteQueue(queue);
});

check("properties and headers of every type come back", async (channel) => {
  const { queue } = await channel.assertQueue("", { exclusive: true });
  const headers = { text: "grün", whole: 5, large: 2 ** 40, part: 1.5, yes: true, none: null, list: [1, "two"], table: { in: 1 } };
  const sent = {
    contentType: "text/plain", contentEncoding: "utf-8", headers, deliveryMode: 2, priority: 3, correlationId: "c",
    replyTo: "r", expiration: "60000", messageId: "m", timestamp: 1_700_000_000, type: "t", userId: "guest", appId: "a",
  };
  channel.sendToQueue(queue, Buffer.from("body"), sent);
  await channel.waitForConfirms();
  const { properties } = await channel.get(queue, { noAck: true });
  for (const [name, value] of Object.entries(sent)) assert.deepEqual(properties[name], value, name);
});

check("a mandatory message that goes nowhere comes back before it is confirmed", async (channel) => {
  const events = [];
  channel.on("return", (message) => events.push(`returned ${message.fields.replyCode} ${message.content}`));
  channel.publish("amq.direct", fresh("nowhere"), Buffer.from("m"), { mandatory: true }, () => events.push("confirmed"));
  await channel.waitForConfirms();
  assert.deepEqual(events, ["returned 312 m", "confirmed"]);
});

check("prefetch bounds what is unsettled, and what is given back comes again", async (channel) => {
  const { queue } = await channel.assertQueue(fresh("bounded"), { durable: true });
  for (const body of "abcde") channel.sendToQueue(queue, Buffer.from(body));
  await channel.waitForConfirms();
  await channel.prefetch(2);
  const { messages } = await collect(channel, queue);
  await until("two messages", () => messages.length === 2);
  await sleep(200);
  assert.deepEqual(bodies(messages), ["a", "b"]);
  channel.nack(messages[0], false, true);
  channel.ack(messages[1]);
  await until("four messages", () => messages.length === 4);
  assert.deepEqual(bodies(messages.slice(2)), ["a", "c"]);
  assert.equal(messages[2].fields.redelivered, true);
  channel.nackAll(false);
  await until("the rest", () => messages.length === 6);
  channel.ackAll();
  assert.equal((await channel.checkQueue(queue)).messageCount, 0);
  await channel.deleteQueue(queue);
});

check("rejected and expired messages go where dead letters go, and say why", async (channel) => {
  const [exchange, dead, work] = ["dlx", "dead", "work"].map(fresh);
  await channel.assertExchange(exchange, "topic");
  await channel.assertQueue(dead);
  await channel.bindQueue(dead, exchange, "failed.#");
  await channel.assertQueue(work, { deadLetterExchange: exchange, deadLetterRoutingKey: "failed.work", messageTtl: 60_000 });
  channel.sendToQueue(work, Buffer.from("rejected"));
  await channel.waitForConfirms();
  channel.reject(await channel.get(work), false);
  channel.sendToQueue(work, Buffer.from("expired"), { expiration: "100" });
  const found = {};
  await until("two dead letters", async () => {
    const message = await channel.get(dead, { noAck: true });
    if (message) found[message.content] = message;
    return Object.keys(found).length === 2;
  });
  for (const [reason, message] of Object.entries(found)) {
    const [death] = message.properties.headers["x-death"];
    assert.deepEqual([death.reason, death.queue, death.count, death["routing-keys"]], [reason, work, 1, [work]]);
    assert.equal(message.fields.routingKey, "failed.work");
    assert.equal(message.properties.headers["x-first-death-queue"], work);
  }
  for (const queue of [work, dead]) await channel.deleteQueue(queue);
  await channel.deleteExchange(exchange);
});

check("headers, bindings between exchanges and a queue with a limit", async (channel) => {
  const [first, second] = ["first", "second"].map(fresh);
  await channel.assertExchange(first, "headers", { autoDelete: true });
  await channel.assertExchange(second, "fanout", { autoDelete: true });
  const { queue } = await channel.assertQueue("", { exclusive: true, maxLength: 2 });
  await channel.bindExchange(second, first, "", { "x-match": "any", kind: "a", size: 1 });
  await channel.bindQueue(queue, second, "");
  for (const [body, headers] of [["1", { kind: "a" }], ["2", { size: 2 }], ["3", { size: 1 }], ["4", { kind: "a", size: 7 }]]) {
    channel.publish(first, "", Buffer.from(body), { headers });
  }
  await channel.waitForConfirms();
  await until("the first one goes", async () => (await channel.checkQueue(queue)).messageCount === 2);
  const got = [await channel.get(queue, { noAck: true }), await channel.get(queue, { noAck: true })];
  assert.deepEqual(bodies(got), ["3", "4"]);
});

check("a consumer is told when its queue is deleted, and an auto-delete queue goes with its last one", async (channel, connection) => {
  const { queue } = await channel.assertQueue(fresh("short"), { autoDelete: true });
  const { messages } = await collect(channel, queue);
  const other = await connection.createChannel();
  await other.deleteQueue(queue);
  await until("the cancellation", () => messages.length === 1);
  assert.equal(messages[0], null);
  await channel.assertQueue(queue, { autoDelete: true });
  const { consumerTag } = await collect(channel, queue);
  await channel.cancel(consumerTag);
  other.on("error", () => {});
  await assert.rejects(other.checkQueue(queue), /404/);
});

for (const [code, what, work] of [
  [404, "a queue that is not there", (channel) => channel.checkQueue(fresh("none"))],
  [403, "a name that is the broker's", (channel) => channel.assertQueue("amq.mine")],
  [406, "a queue declared otherwise", async (channel) => {
    const queue = fresh("twice");
    await channel.assertQueue(queue, { exclusive: true });
    return channel.assertQueue(queue, { exclusive: true, maxLength: 5 });
  }],
  [406, "a tag that was never given out", (channel) => {
    channel.ack({ fields: { deliveryTag: 99 } });
    return channel.checkExchange("amq.direct");
  }],
]) {
  check(`${what} ends the channel with ${code} and not the connection`, async (_, connection) => {
    const channel = await connection.createChannel();
    const ended = once(channel, "error");
    channel.on("error", () => {});
    await assert.rejects(work(channel));
    const [error] = await ended;
    assert.equal(error.code, code);
    await (await connection.createChannel()).close();
  });
}

check("an exclusive queue is locked to others and free once its connection is closed", async (channel, connection) => {
  const queue = fresh("mine");
  const owner = await amqplib.connect(URL);
  await (await owner.createChannel()).assertQueue(queue, { exclusive: true });
  const refused = await connection.createChannel();
  refused.on("error", () => {});
  await assert.rejects(refused.assertQueue(queue, { exclusive: true }), /405/);
  await owner.close();
  await channel.assertQueue(queue, { exclusive: true });
});

check("a large message and an empty one", async (channel) => {
  const { queue } = await channel.assertQueue("", { exclusive: true });
  const large = randomBytes(6 << 20);
  channel.sendToQueue(queue, large);
  channel.sendToQueue(queue, Buffer.alloc(0));
  await channel.waitForConfirms();
  assert.ok((await channel.get(queue, { noAck: true })).content.equals(large));
  assert.equal((await channel.get(queue, { noAck: true })).content.length, 0);
});

test("after a crash it connects again by itself, and what was confirmed is there", { skip: !process.env.SUITE_CRASH }, async () => {
  const queue = fresh("durable");
  const seen = new Set();
  const setup = async (model) => {
    const channel = await model.createChannel();
    await channel.assertQueue(queue, { durable: true });
    await channel.prefetch(10);
    await channel.consume(queue, (message) => {
      if (!message) return;
      seen.add(message.content.toString());
      channel.ack(message);
    });
  };
  const publisher = await amqplib.connect(URL);
  publisher.on("error", () => {});
  const channel = await publisher.createConfirmChannel();
  channel.on("error", () => {});
  await channel.assertQueue(queue, { durable: true });
  for (let number = 0; number < 100; number++) channel.sendToQueue(queue, Buffer.from(String(number)), { persistent: true });
  await channel.waitForConfirms();
  await promisify(execFile)("sh", ["-c", process.env.SUITE_CRASH]);
  const consumer = await amqplib.connect(URL, { recovery: { initialDelay: 50, maxDelay: 500, setup } });
  consumer.on("error", () => {});
  await until("all messages", () => seen.size === 100);
  const again = new Promise((resolve) => consumer.once("connect", resolve));
  await promisify(execFile)("sh", ["-c", process.env.SUITE_CRASH]);
  await again;
  const second = await amqplib.connect(URL);
  const confirming = await second.createConfirmChannel();
  confirming.sendToQueue(queue, Buffer.from("after"), { persistent: true });
  await confirming.waitForConfirms();
  await until("what came after", () => seen.has("after"));
  await confirming.deleteQueue(queue);
  await Promise.all([second.close(), consumer.close()]);
});

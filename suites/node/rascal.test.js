// rascal: retries, dead letters and recovery as Node's applications configure them, on amqplib.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import rascal from "rascal";

const WAIT_MS = 20_000;
const id = randomUUID().slice(0, 8);

async function until(what, holds) {
  const deadline = Date.now() + WAIT_MS;
  while (!(await holds())) {
    assert.ok(Date.now() < deadline, `not in time: ${what}`);
    await sleep(20);
  }
}

const named = (name) => `${name}-${id}`;

function configuration() {
  return rascal.withDefaultConfig({
    vhosts: {
      "/": {
        connection: {
          url: `amqp://guest:guest@${process.env.SUITE_AMQP}/?heartbeat=5`,
          retry: { min: 50, max: 500, factor: 2, strategy: "exponential" },
        },
        exchanges: { [named("work")]: { type: "topic" }, [named("dead")]: { type: "topic" } },
        queues: {
          [named("work")]: { options: { arguments: { "x-dead-letter-exchange": named("dead") } } },
          [named("dead")]: {},
        },
        bindings: {
          work: { source: named("work"), destination: named("work"), bindingKey: "job.#" },
          dead: { source: named("dead"), destination: named("dead"), bindingKey: "#" },
        },
        publications: { work: { exchange: named("work"), routingKey: "job.new", confirm: true } },
        subscriptions: {
          work: { queue: named("work"), prefetch: 5, retry: { min: 50, max: 500, factor: 2, strategy: "exponential" } },
          dead: { queue: named("dead") },
        },
      },
    },
  });
}

async function broker(work) {
  const broker = await rascal.BrokerAsPromised.create(configuration());
  broker.on("error", () => {});
  try {
    await work(broker);
  } finally {
    await broker.nuke();
  }
}

async function subscribe(broker, name, onMessage) {
  const subscription = await broker.subscribe(name);
  subscription.on("error", () => {}).on("message", onMessage);
  return subscription;
}

async function publish(broker, content) {
  const publication = await broker.publish("work", content);
  publication.on("error", () => {});
  await new Promise((resolve, reject) => publication.on("success", resolve).on("return", reject));
}

test("a job that fails is tried again, and in the end dead", () =>
  broker(async (broker) => {
    const tries = [];
    const dead = [];
    await subscribe(broker, "work", (_message, content, ackOrNack) => {
      tries.push(content.name);
      if (content.name === "good") return ackOrNack();
      ackOrNack(new Error("it fails"), [
        { strategy: "republish", defer: 50, attempts: 2 },
        { strategy: "nack" },
      ]);
    });
    await subscribe(broker, "dead", (message, content, ackOrNack) => {
      dead.push({ content, death: message.properties.headers["x-death"][0] });
      ackOrNack();
    });
    await publish(broker, { name: "bad" });
    await publish(broker, { name: "good" });
    await until("a dead job", () => dead.length === 1);
    assert.deepEqual(tries.filter((name) => name === "bad").length, 3);
    assert.deepEqual(dead[0].content, { name: "bad" });
    assert.deepEqual([dead[0].death.reason, dead[0].death.queue], ["rejected", named("work")]);
  }));

test("it finds its way back after a crash, and loses nothing that was confirmed", { skip: !process.env.SUITE_CRASH }, () =>
  broker(async (broker) => {
    for (let number = 0; number < 50; number++) await publish(broker, { number });
    const seen = new Set();
    let crashing = true;
    await subscribe(broker, "work", (_message, content, ackOrNack) => {
      if (crashing) return;
      seen.add(content.number);
      ackOrNack();
    });
    const crashed = promisify(execFile)("sh", ["-c", process.env.SUITE_CRASH]);
    crashing = false;
    await crashed;
    await until("everything", () => seen.size === 50);
  }));

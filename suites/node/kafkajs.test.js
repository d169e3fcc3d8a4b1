// kafkajs: unmaintained and everywhere, it speaks the oldest versions of all clients in use.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import kafkajs from "kafkajs";

const { CompressionTypes, Kafka, logLevel } = kafkajs;
const WAIT_MS = 60_000;
const kafka = new Kafka({ brokers: [process.env.SUITE_BOOTSTRAP], logLevel: logLevel.ERROR });
const fresh = (words) => `${words}-${randomUUID().slice(0, 8)}`;

async function until(what, holds) {
  const deadline = Date.now() + WAIT_MS;
  while (!(await holds())) {
    assert.ok(Date.now() < deadline, `not in time: ${what}`);
    await sleep(50);
  }
}

async function withAdmin(work) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.disconnect();
  }
}

const create = (topic, numPartitions) =>
  withAdmin((admin) => admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor: 1 }] }));

async function produce(topic, messages, settings = {}) {
  const producer = kafka.producer({ idempotent: settings.idempotent ?? false });
  await producer.connect();
  try {
    return await producer.send({ topic, messages, acks: -1, compression: settings.compression });
  } finally {
    await producer.disconnect();
  }
}

class Member {
  constructor(groupId, topic) {
    this.topic = topic;
    this.read = [];
    this.partitions = [];
    this.consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 500, rebalanceTimeout: 10_000 });
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.partitions = payload.memberAssignment[topic] ?? [];
    });
  }

  async start() {
    await this.consumer.connect();
    await this.consumer.subscribe({ topic: this.topic, fromBeginning: true });
    await this.consumer.run({
      eachMessage: async ({ partition, message }) => {
        this.read.push({ partition, ...message });
      },
    });
  }

  stop() {
    return this.consumer.disconnect();
  }
}

for (const [name, compression] of [["none", CompressionTypes.None], ["gzip", CompressionTypes.GZIP]]) {
  test(`every part of a record comes back with ${name}`, async () => {
    const topic = fresh(`parts-${name}`);
    await create(topic, 1);
    const sent = Array.from({ length: 300 }, (_, number) => ({
      key: number % 5 ? `key ${number}` : null,
      value: number % 7 ? `value ${number} `.repeat(10) : null,
      headers: number % 2 ? { count: String(number), twice: ["1", "2"] } : {},
      timestamp: String(1_600_000_000_000 + number),
    }));
    const [answer] = await produce(topic, sent, { compression, idempotent: true });
    assert.equal(answer.baseOffset, "0");
    const member = new Member(topic, topic);
    await member.start();
    await until("all is read", () => member.read.length === sent.length);
    await member.stop();
    member.read.forEach((came, number) => {
      const { key, value, headers, timestamp } = sent[number];
      assert.equal(came.offset, String(number));
      assert.equal(came.key?.toString() ?? null, key);
      assert.equal(came.value?.toString() ?? null, value);
      assert.equal(came.timestamp, timestamp);
      assert.equal(came.headers.count?.toString(), headers.count);
      assert.deepEqual(came.headers.twice?.map(String), headers.twice);
    });
  });
}

test("two members share, and a third reader goes on where they committed", async () => {
  const topic = fresh("share");
  await create(topic, 4);
  const members = [new Member(topic, topic), new Member(topic, topic)];
  await Promise.all(members.map((member) => member.start()));
  await until("both have their half", () => members.every((member) => member.partitions.length === 2));
  await produce(topic, Array.from({ length: 400 }, (_, number) => ({ partition: number % 4, value: String(number) })));
  await until("all is read", () => members[0].read.length + members[1].read.length >= 400);
  await Promise.all(members.map((member) => member.stop()));
  const values = members.flatMap((member) => member.read.map((came) => Number(came.value)));
  assert.deepEqual(values.sort((a, b) => a - b), Array.from({ length: 400 }, (_, number) => number));
  await produce(topic, [{ partition: 3, value: "late" }]);
  const again = new Member(topic, topic);
  await again.start();
  await until("the late record is read", () => again.read.length > 0);
  await again.stop();
  assert.deepEqual(again.read.map((came) => String(came.value)), ["late"]);
});

test("topics and offsets through the admin client", async () => {
  const topic = fresh("admin");
  await create(topic, 3);
  await produce(topic, [{ partition: 1, value: "a" }, { partition: 1, value: "b" }]);
  await withAdmin(async (admin) => {
    assert.ok((await admin.listTopics()).includes(topic));
    const offsets = await admin.fetchTopicOffsets(topic);
    assert.deepEqual(
      offsets.sort((a, b) => a.partition - b.partition).map(({ low, high }) => [low, high]),
      [["0", "0"], ["0", "2"], ["0", "0"]],
    );
    await admin.deleteTopics({ topics: [topic] });
    await until("it is gone", async () => !(await admin.listTopics()).includes(topic));
  });
});

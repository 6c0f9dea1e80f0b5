// Transactional producers and readers of KafkaJS: a line of JSON on standard output for each on standard input; see
// tests/support/transactions/programs.py.
const readline = require("readline");
const { Kafka, logLevel } = require("kafkajs");

const producers = new Map(); // by name: [producer, the open transaction]
let groups = 0;

function client(bootstrap) {
  return new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 50, retries: 20 } });
}

async function read({ bootstrap, topic, last, isolation, timeout_ms: timeoutMs }) {
  groups += 1;
  const consumer = client(bootstrap).consumer({
    groupId: `${topic}-${process.pid}-${groups}`,
    readUncommitted: isolation === "read_uncommitted",
    maxWaitTimeInMs: 100,
  });
  await consumer.connect();
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    const records = [];
    await new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`only ${JSON.stringify(records)} is read`)), timeoutMs);
      const end = (how) => (value) => { clearTimeout(timer); how(value); };
      consumer.on(consumer.events.CRASH, ({ payload }) => end(reject)(payload.error));
      consumer.run({
        eachMessage: async ({ partition, message }) => {
          if (partition !== 0) return;
          records.push([Number(message.offset), message.value.toString()]);
          if (message.value.toString() === last) end(resolve)();
        },
      }).catch(end(reject));
    });
    return { records };
  } finally {
    await consumer.disconnect();
  }
}

const calls = {
  open: async ({ name, bootstrap, id, timeout_ms: transactionTimeout }) => {
    const producer = client(bootstrap).producer({
      transactionalId: id, transactionTimeout, maxInFlightRequests: 1, idempotent: true,
    });
    await producer.connect();
    // KafkaJS has no call that initializes without a beginning.
    producers.set(name, [producer, await producer.transaction()]);
  },
  begin: async ({ name }) => {
    const [producer, open] = producers.get(name);
    if (!open.isActive()) producers.set(name, [producer, await producer.transaction()]);
  },
  send: async ({ name, topic, partition, values }) => {
    await producers.get(name)[1].send({ topic, messages: values.map((value) => ({ value, partition })) });
  },
  offsets: async ({ name, group, offsets }) => {
    const topics = offsets.map(([topic, partition, offset]) => ({ topic, partitions: [{ partition, offset: `${offset}` }] }));
    await producers.get(name)[1].sendOffsets({ consumerGroupId: group, topics });
  },
  commit: async ({ name }) => producers.get(name)[1].commit(),
  abort: async ({ name }) => producers.get(name)[1].abort(),
  close: async ({ name }) => {
    await producers.get(name)[0].disconnect();
    producers.delete(name);
  },
  read,
};

function first(problem) {
  return problem.cause ? first(problem.cause) : problem;
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const call = JSON.parse(line);
    let reply;
    try {
      reply = (await calls[call.do](call)) || {};
    } catch (problem) {
      reply = { error: first(problem).type || first(problem).name, message: String(problem.message) };
    }
    process.stdout.write(`${JSON.stringify(reply)}\n`);
  }
  process.exit(0);
}

main();

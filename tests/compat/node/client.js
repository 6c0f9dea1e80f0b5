// node client.js BOOTSTRAP TOPIC GROUP produce VALUE... | consume COUNT: KafkaJS as it comes, without further codecs.
//   | create | check | read LAST BEGIN...
// consume prints the values as one JSON array; read, for each offset to begin at, a line of [offset, key, value] up to
// the last offset; check the name of the error with which the client is kept out.
// KAFKAJS_SECURITY, JSON: ca, cert and key (files), mechanism, user, password, token.
const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, topic, groupId, command, ...rest] = process.argv.slice(2);
const retry = command === "check" ? { retry: { retries: 0 } } : {};
const kafka = new Kafka({ brokers: [bootstrap], ...security(), ...retry, logLevel: logLevel.ERROR });

function security() {
  const { tls, ca, cert, key, mechanism, user, password, token } = JSON.parse(process.env.KAFKAJS_SECURITY || "{}");
  const read = (path) => (path ? fs.readFileSync(path) : undefined);
  const settings = {};
  if (tls) settings.ssl = { ca: read(ca), cert: read(cert), key: read(key) };
  if (mechanism === "OAUTHBEARER") {
    settings.sasl = { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: token }) };
  } else if (mechanism) {
    settings.sasl = { mechanism: mechanism.toLowerCase(), username: user, password };
  }
  return settings;
}

async function create() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true });
  await admin.disconnect();
}

async function check() {
  const producer = kafka.producer();
  try {
    await producer.connect();
    await producer.send({ topic, messages: [{ value: "x" }] });
  } catch (problem) {
    console.log(JSON.stringify({ error: reason(problem) }));
    return;
  } finally {
    await producer.disconnect();
  }
  console.log(JSON.stringify({ error: null }));
}

// The name of the first cause: Kafka's name of an error, or KafkaJS' class.
function reason(problem) {
  return problem.cause ? reason(problem.cause) : problem.type || problem.name;
}

async function produce(values) {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, messages: values.map((value) => ({ value })) });
  await producer.disconnect();
}

async function consume(count) {
  const consumer = kafka.consumer({ groupId });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const values = [];
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer.run({
      eachMessage: async ({ message }) => {
        if (values.push(message.value.toString()) === count) resolve();
      },
    });
  });
  await consumer.disconnect();
  console.log(JSON.stringify(values));
}

// Of partition 0. A record without a value has null.
async function read(last, begins) {
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 100 });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  let found = [];
  await new Promise((resolve, reject) => {
    const next = () => {
      if (begins.length === 0) return resolve();
      found = [];
      consumer.seek({ topic, partition: 0, offset: begins.shift() });
    };
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer.on(consumer.events.GROUP_JOIN, next);
    consumer.run({
      eachMessage: async ({ message }) => {
        const text = (bytes) => (bytes === null ? null : bytes.toString());
        found.push([Number(message.offset), text(message.key), text(message.value)]);
        if (Number(message.offset) < last) return;
        console.log(JSON.stringify(found));
        next();
      },
    });
  });
  await consumer.disconnect();
}

const commands = { produce: () => produce(rest), consume: () => consume(Number(rest[0])), create, check,
  read: () => read(Number(rest[0]), rest.slice(1)) };
commands[command]().catch((problem) => {
  console.error(problem);
  console.error(`reason: ${reason(problem)}`);
  process.exit(1);
});

// node client.js BOOTSTRAP TOPIC GROUP produce VALUE... | consume COUNT: KafkaJS as it comes, without further codecs.
// consume prints the values as one JSON array.
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, topic, groupId, command, ...rest] = process.argv.slice(2);
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR });

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

(command === "produce" ? produce(rest) : consume(Number(rest[0]))).catch((problem) => {
  console.error(problem);
  process.exit(1);
});

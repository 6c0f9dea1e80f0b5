import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FenceProducersOptions;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactional producers, readers and a few calls of the AdminClient in one JVM; see
 * tests/support/transactions/programs.py for the requests, one line of JSON each.
 */
public final class TransactionServer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, KafkaProducer<String, String>> PRODUCERS = new HashMap<>();
    private static final Map<String, KafkaConsumer<String, String>> MEMBERS = new HashMap<>();

    private TransactionServer() {}

    public static void main(String[] args) throws IOException {
        PrintStream replies = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = requests.readLine()) != null) {
            replies.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            replies.flush();
        }
        System.exit(0);
    }

    private static ObjectNode answer(JsonNode request) {
        ObjectNode reply = JSON.createObjectNode();
        try {
            answer(request, reply);
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            reply.put("error", cause.getClass().getSimpleName()).put("message", String.valueOf(cause.getMessage()));
        }
        return reply;
    }

    private static void answer(JsonNode request, ObjectNode reply) throws Exception {
        switch (request.get("do").asText()) {
            case "open" -> open(request);
            case "begin" -> producer(request).beginTransaction();
            case "send" -> send(request);
            case "offsets" -> offsets(request);
            case "commit" -> producer(request).commitTransaction();
            case "abort" -> producer(request).abortTransaction();
            case "close" -> PRODUCERS.remove(request.get("name").asText()).close(Duration.ZERO);
            case "read" -> read(request, reply.putArray("records"));
            case "send_all" -> sendAll(request);
            case "join" -> join(request);
            case "remove_members" -> removeMembers(request);
            case "leave" -> MEMBERS.remove(request.get("member").asText()).close();
            case "committed" -> committed(request, reply.putArray("offsets"));
            case "end_offset" -> endOffset(request, reply);
            case "fence" -> fence(request);
            default -> throw new IllegalArgumentException("unknown request " + request);
        }
    }

    private static KafkaProducer<String, String> producer(JsonNode request) {
        return PRODUCERS.get(request.get("name").asText());
    }

    private static void open(JsonNode request) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", request.get("bootstrap").asText());
        properties.put("transactional.id", request.get("id").asText());
        properties.put("transaction.timeout.ms", request.get("timeout_ms").asText());
        properties.put("linger.ms", "0");
        properties.put("retry.backoff.ms", "20");
        KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
        try {
            producer.initTransactions();
        } catch (RuntimeException error) {
            producer.close(Duration.ZERO);
            throw error;
        }
        PRODUCERS.put(request.get("name").asText(), producer);
    }

    private static void send(JsonNode request) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode value : request.get("values")) {
            sent.add(producer(request).send(new ProducerRecord<>(
                    request.get("topic").asText(), request.get("partition").asInt(), null, value.asText())));
        }
        producer(request).flush();
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }

    /** One record to each partition. */
    private static void sendAll(JsonNode request) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int partition = 0; partition < request.get("partitions").asInt(); partition++) {
            sent.add(producer(request).send(new ProducerRecord<>(
                    request.get("topic").asText(), partition, null, request.get("value").asText())));
        }
        producer(request).flush();
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }

    /** With the metadata of a member that has joined, or of the group alone. */
    private static void offsets(JsonNode request) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode row : request.get("offsets")) {
            offsets.put(
                    new TopicPartition(row.get(0).asText(), row.get(1).asInt()),
                    new OffsetAndMetadata(row.get(2).asLong()));
        }
        ConsumerGroupMetadata group = request.hasNonNull("member")
                ? MEMBERS.get(request.get("member").asText()).groupMetadata()
                : new ConsumerGroupMetadata(request.get("group").asText());
        producer(request).sendOffsetsToTransaction(offsets, group);
    }

    private static Properties consumer(JsonNode request) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", request.get("bootstrap").asText());
        properties.put("isolation.level", request.path("isolation").asText("read_committed"));
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("fetch.max.wait.ms", "100");
        if (request.hasNonNull("group")) {
            properties.put("group.id", request.get("group").asText());
        }
        return properties;
    }

    private static KafkaConsumer<String, String> open(Properties properties) {
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    private static void read(JsonNode request, ArrayNode records) {
        TopicPartition partition = new TopicPartition(request.get("topic").asText(), 0);
        String last = request.get("last").asText();
        long deadline = System.currentTimeMillis() + request.get("timeout_ms").asLong();
        try (KafkaConsumer<String, String> consumer = open(consumer(request))) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            while (System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    records.addArray().add(record.offset()).add(record.value());
                    if (record.value().equals(last)) {
                        return;
                    }
                }
            }
        }
        throw new IllegalStateException(last + " was not read, but " + records);
    }

    /** Makes a member of a group, which does not poll after it has its partitions. */
    private static void join(JsonNode request) {
        KafkaConsumer<String, String> member = open(consumer(request));
        member.subscribe(List.of(request.get("topic").asText()));
        long deadline = System.currentTimeMillis() + request.get("timeout_ms").asLong();
        while (member.assignment().isEmpty()) {
            member.poll(Duration.ofMillis(100));
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("no partition is assigned");
            }
        }
        MEMBERS.put(request.get("member").asText(), member);
    }

    /** Removes all members of a group, without a word to them. */
    private static void removeMembers(JsonNode request) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", request.get("bootstrap").asText());
        try (Admin admin = Admin.create(properties)) {
            admin.removeMembersFromConsumerGroup(
                    request.get("group").asText(), new RemoveMembersFromConsumerGroupOptions()).all().get();
        }
    }

    /** What KafkaConsumer.committed says, which waits until no transaction with offsets of the partition is open. */
    private static void committed(JsonNode request, ArrayNode offsets) {
        TopicPartition partition = new TopicPartition(request.get("topic").asText(), 0);
        try (KafkaConsumer<String, String> consumer = open(consumer(request))) {
            OffsetAndMetadata found = consumer.committed(
                    java.util.Set.of(partition), Duration.ofMillis(request.get("timeout_ms").asLong())).get(partition);
            if (found != null) {
                offsets.add(found.offset());
            }
        }
    }

    private static void endOffset(JsonNode request, ObjectNode reply) {
        TopicPartition partition = new TopicPartition(request.get("topic").asText(), 0);
        try (KafkaConsumer<String, String> consumer = open(consumer(request))) {
            reply.put("offset", consumer.endOffsets(List.of(partition)).get(partition));
        }
    }

    private static void fence(JsonNode request) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", request.get("bootstrap").asText());
        try (Admin admin = Admin.create(properties)) {
            admin.fenceProducers(
                    List.of(request.get("id").asText()), new FenceProducersOptions().timeoutMs(60_000)).all().get();
        }
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's own tools and clients in one JVM for many tests: one JSON request per line on standard input,
 * one JSON reply per line on standard output. Bytes travel as base64.
 */
public final class ToolServer {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Ends a tool at its Exit.exit. Some tools catch it and exit again: the first exit counts. */
    private static final class ExitCalled extends Error {
        ExitCalled(int status) {
            super("exit " + status, null, false, false);
        }
    }

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
        try {
            switch (request.get("do").asText()) {
                case "tool":
                    return tool(request);
                case "produce":
                    return produce(request);
                case "consume":
                    return consume(request);
                case "offsets":
                    return offsets(request);
                default:
                    throw new IllegalArgumentException("unknown request " + request);
            }
        } catch (Exception error) {
            return describe(error, JSON.createObjectNode());
        }
    }

    /** Runs the main method of a tool with its own standard streams and gives its exit status and output. */
    private static ObjectNode tool(JsonNode request) throws Exception {
        List<String> arguments = new ArrayList<>();
        request.get("args").forEach(argument -> arguments.add(argument.asText()));
        InputStream input = System.in;
        PrintStream output = System.out;
        PrintStream errors = System.err;
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        List<Runnable> hooks = new ArrayList<>();
        ObjectNode reply = JSON.createObjectNode();
        Exit.setExitProcedure((status, message) -> {
            result(reply, status, out, err);
            throw new ExitCalled(status);
        });
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        System.setIn(new ByteArrayInputStream(bytes(request.get("stdin"), new byte[0])));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        try {
            int status = runMain(request.get("class").asText(), arguments.toArray(new String[0]));
            result(reply, status, out, err);
            hooks.forEach(Runnable::run);
        } finally {
            System.setIn(input);
            System.setOut(output);
            System.setErr(errors);
            Exit.resetExitProcedure();
            Exit.resetShutdownHookAdder();
        }
        return reply;
    }

    private static void result(
            ObjectNode reply, int status, ByteArrayOutputStream out, ByteArrayOutputStream err) {
        if (!reply.has("exit")) {
            reply.put("exit", status);
            reply.put("out", out.toString(StandardCharsets.UTF_8));
            reply.put("err", err.toString(StandardCharsets.UTF_8));
        }
    }

    private static int runMain(String className, String[] arguments) throws Exception {
        Method main = Class.forName(className).getMethod("main", String[].class);
        try {
            main.invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof ExitCalled)) {
                error.getCause().printStackTrace(); // as the JVM does with what main throws
            }
            return 1;
        }
    }

    /**
     * Sends all records, `pause_ms` after each, then reports for each its partition, offset and timestamp, or its
     * error.
     */
    private static ObjectNode produce(JsonNode request) throws InterruptedException {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        ArrayNode results = JSON.createArrayNode();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config(request), new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode record : request.get("records")) {
                sent.add(producer.send(producerRecord(request.get("topic").asText(), record)));
                Thread.sleep(request.path("pause_ms").asLong(0));
            }
            producer.flush();
            for (Future<RecordMetadata> one : sent) {
                ObjectNode result = results.addObject();
                try {
                    RecordMetadata metadata = one.get();
                    result.put("partition", metadata.partition());
                    result.put("offset", metadata.offset());
                    result.put("timestamp", metadata.timestamp());
                } catch (ExecutionException | InterruptedException error) {
                    describe(error.getCause() == null ? error : error.getCause(), result);
                }
            }
        }
        ObjectNode reply = JSON.createObjectNode();
        reply.set("results", results);
        return reply;
    }

    private static ProducerRecord<byte[], byte[]> producerRecord(String topic, JsonNode node) {
        Integer partition = node.hasNonNull("partition") ? node.get("partition").asInt() : null;
        Long timestamp = node.hasNonNull("timestamp") ? node.get("timestamp").asLong() : null;
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                topic, partition, timestamp, bytes(node.get("key"), null), bytes(node.get("value"), null));
        if (node.has("headers")) {
            node.get("headers").forEach(
                    header -> record.headers().add(header.get(0).asText(), bytes(header.get(1), null)));
        }
        return record;
    }

    /**
     * Reads `count` records of one partition from an offset on, or, without a partition, as a member of a group;
     * fewer when `timeout_ms` is over, or after one at `last_offset` or above.
     */
    private static ObjectNode consume(JsonNode request) {
        int count = request.get("count").asInt();
        long deadline = System.currentTimeMillis() + request.get("timeout_ms").asLong();
        long lastOffset = request.hasNonNull("last_offset") ? request.get("last_offset").asLong() : Long.MAX_VALUE;
        long atOffset = -1;
        ArrayNode records = JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
            if (request.hasNonNull("partition")) {
                consumer.assign(List.of(partition(request)));
                consumer.seek(partition(request), request.get("offset").asLong());
            } else {
                consumer.subscribe(List.of(request.get("topic").asText()));
            }
            while (records.size() < count && atOffset < lastOffset && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    records.add(consumed(record));
                    atOffset = record.offset();
                }
            }
        }
        ObjectNode reply = JSON.createObjectNode();
        reply.set("records", records);
        return reply;
    }

    private static ObjectNode consumed(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode node = JSON.createObjectNode();
        node.put("offset", record.offset());
        node.put("timestamp", record.timestamp());
        node.put("timestamp_type", record.timestampType().toString());
        node.put("key", base64(record.key()));
        node.put("value", base64(record.value()));
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(base64(header.value()));
        }
        return node;
    }

    /** First and next offset of a partition and, with `timestamp`, the first offset at or after it (or null). */
    private static ObjectNode offsets(JsonNode request) {
        TopicPartition partition = partition(request);
        ObjectNode reply = JSON.createObjectNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
            reply.put("beginning", consumer.beginningOffsets(List.of(partition)).get(partition));
            reply.put("end", consumer.endOffsets(List.of(partition)).get(partition));
            if (request.hasNonNull("timestamp")) {
                OffsetAndTimestamp found = consumer
                        .offsetsForTimes(Map.of(partition, request.get("timestamp").asLong()))
                        .get(partition);
                reply.put("for_time", found == null ? null : found.offset());
                reply.put("time_found", found == null ? null : found.timestamp());
            }
        }
        return reply;
    }

    private static KafkaConsumer<byte[], byte[]> consumer(JsonNode request) {
        return new KafkaConsumer<>(config(request), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static TopicPartition partition(JsonNode request) {
        return new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
    }

    private static Properties config(JsonNode request) {
        Properties properties = new Properties();
        request.get("config").fields()
                .forEachRemaining(entry -> properties.put(entry.getKey(), entry.getValue().asText()));
        return properties;
    }

    private static ObjectNode describe(Throwable error, ObjectNode into) {
        into.put("error", error.getClass().getSimpleName());
        into.put("message", String.valueOf(error.getMessage()));
        return into;
    }

    private static byte[] bytes(JsonNode node, byte[] otherwise) {
        return node == null || node.isNull() ? otherwise : Base64.getDecoder().decode(node.asText());
    }

    private static String base64(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Runs many group members, producers and admin calls in one JVM: one JSON request per line on standard input, one
 * JSON reply per line on standard output. Members live on until they are closed; what they wrote down stays.
 */
public final class GroupServer {
    private static final long PATIENCE_SECONDS = 30;
    private static final Map<String, GroupMember> MEMBERS = new HashMap<>();
    private static final Map<String, Flow> FLOWS = new HashMap<>();

    private GroupServer() {}

    /** A producer that sends to every partition of a topic in turn until it is stopped. */
    private static final class Flow {
        private final CompletableFuture<ObjectNode> done = new CompletableFuture<>();
        private volatile boolean stopped;

        Flow(JsonNode request) {
            Thread thread = new Thread(() -> {
                try {
                    done.complete(run(request));
                } catch (Exception error) {
                    done.complete(Json.failure(error));
                }
            }, "flow");
            thread.setDaemon(true);
            thread.start();
        }

        ObjectNode stop() throws Exception {
            stopped = true;
            return done.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
        }

        private ObjectNode run(JsonNode request) throws Exception {
            String topic = request.get("topic").asText();
            int partitions = request.get("partitions").asInt();
            int[] counts = new int[partitions];
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            try (KafkaProducer<String, String> producer = producer(request)) {
                while (!stopped) {
                    for (int partition = 0; partition < partitions; partition++) {
                        String value = partition + "/" + counts[partition]++;
                        sent.add(producer.send(new ProducerRecord<>(topic, partition, null, value)));
                    }
                    TimeUnit.MILLISECONDS.sleep(request.get("pause_ms").asInt());
                }
                producer.flush();
                for (Future<RecordMetadata> one : sent) {
                    one.get();
                }
            }
            return Json.object().set("counts", Json.MAPPER.valueToTree(counts));
        }
    }

    public static void main(String[] args) throws IOException {
        PrintStream replies = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = requests.readLine()) != null) {
            replies.println(Json.MAPPER.writeValueAsString(answer(Json.MAPPER.readTree(line))));
            replies.flush();
        }
        System.exit(0);
    }

    private static ObjectNode answer(JsonNode request) {
        try {
            switch (request.get("do").asText()) {
                case "start":
                    MEMBERS.put(name(request), new GroupMember(name(request), request));
                    return Json.object();
                case "events":
                    return member(request).events(request.get("from").asInt());
                case "ask":
                    return member(request).ask(request).get(PATIENCE_SECONDS, TimeUnit.SECONDS);
                case "open_gate":
                    member(request).openGate();
                    return Json.object();
                case "close":
                    return close(request);
                case "produce":
                    return produce(request);
                case "start_flow":
                    FLOWS.put(name(request), new Flow(request));
                    return Json.object();
                case "stop_flow":
                    return FLOWS.remove(name(request)).stop();
                case "init_transactions":
                    return initTransactions(request);
                case "admin":
                    return GroupAdmin.run(request);
                default:
                    throw new IllegalArgumentException("unknown request " + request);
            }
        } catch (Exception error) {
            return Json.failure(error);
        }
    }

    private static String name(JsonNode request) {
        return request.get("name").asText();
    }

    private static GroupMember member(JsonNode request) {
        return MEMBERS.get(name(request));
    }

    /** Closes members at the same time, and gives the error of the first that had one. */
    private static ObjectNode close(JsonNode request) throws Exception {
        List<Future<ObjectNode>> ends = new ArrayList<>();
        for (String name : Json.texts(request.get("names"))) {
            ends.add(MEMBERS.get(name).close(request.get("membership").asText()));
        }
        ObjectNode reply = Json.object();
        for (Future<ObjectNode> end : ends) {
            ObjectNode one = end.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
            reply = reply.has("error") ? reply : one;
        }
        return reply;
    }

    /** Sends rows of partition and value, and returns when all are acknowledged. */
    private static ObjectNode produce(JsonNode request) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(request)) {
            for (JsonNode row : request.get("records")) {
                sent.add(producer.send(new ProducerRecord<>(
                        request.get("topic").asText(), row.get(0).asInt(), null, row.get(1).asText())));
            }
        }
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
        return Json.object();
    }

    private static ObjectNode initTransactions(JsonNode request) {
        try (KafkaProducer<String, String> producer = producer(request)) {
            producer.initTransactions();
        }
        return Json.object();
    }

    private static KafkaProducer<String, String> producer(JsonNode request) {
        return new KafkaProducer<>(Json.config(request), new StringSerializer(), new StringSerializer());
    }
}

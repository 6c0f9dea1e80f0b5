// A member of a share group with the Java client until SIGTERM: then it leaves the group. It says what it does as one
// JSON object per line on standard output (tests/support/share_clients.py). The value of a record begins with what is
// to become of it: accepted, released ("poison", "again" at its first delivery), rejected ("bad"), renewed ("renew").
// nanoTime is the monotonic clock that Python's time.monotonic_ns() reads.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareMember {
    private static final Duration POLL = Duration.ofMillis(100);
    private static volatile boolean stopping = false;

    private final KafkaShareConsumer<String, String> consumer;
    private final boolean isExplicit;
    private final boolean holds;
    private final long workMillis;
    private final Set<String> renewed = new HashSet<>();

    ShareMember(Map<String, String> options) {
        Properties config = new Properties();
        isExplicit = options.get("-mode").equals("explicit");
        holds = options.get("-hold").equals("true");
        workMillis = Long.parseLong(options.getOrDefault("-work", "0"));
        config.put("bootstrap.servers", options.get("-bootstrap"));
        config.put("group.id", options.get("-group"));
        config.put("share.acknowledgement.mode", options.get("-mode"));
        config.put("max.poll.records", options.get("-count"));
        config.put("reconnect.backoff.ms", "20");
        config.put("reconnect.backoff.max.ms", "200");
        config.put("key.deserializer", StringDeserializer.class.getName());
        config.put("value.deserializer", StringDeserializer.class.getName());
        consumer = new KafkaShareConsumer<>(config);
        consumer.setAcknowledgementCommitCallback(ShareMember::acknowledged);
        consumer.subscribe(List.of(options.get("-topics").split(",")));
    }

    void run() throws InterruptedException {
        while (!stopping) {
            List<ConsumerRecord<String, String>> received = new ArrayList<>();
            for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                received.add(record);
                say("{\"event\": \"record\", \"topic\": \"%s\", \"partition\": %d, \"offset\": %d, \"value\": \"%s\", "
                    + "\"deliveries\": %d, \"at\": %d}", record.topic(), record.partition(), record.offset(),
                    record.value(), record.deliveryCount().orElse((short) 0), System.nanoTime());
            }
            if (!received.isEmpty() && holds) {
                say("{\"event\": \"holding\"}");
                while (!stopping) {
                    Thread.sleep(POLL.toMillis());
                }
            } else if (!received.isEmpty() && isExplicit) {
                Thread.sleep(workMillis);
                say("{\"event\": \"telling\", \"at\": %d}", System.nanoTime());
                for (ConsumerRecord<String, String> record : received) {
                    consumer.acknowledge(record, wish(record));
                }
                Map<TopicIdPartition, Optional<KafkaException>> results = consumer.commitSync();
                results.values().forEach(error -> error.ifPresent(ShareMember::failed));
            }
        }
        consumer.close();
        say("{\"event\": \"ended\"}");
    }

    private AcknowledgeType wish(ConsumerRecord<String, String> record) {
        return switch (record.value().split("-")[0]) {
            case "poison" -> AcknowledgeType.RELEASE;
            case "again" -> record.deliveryCount().orElse((short) 0) == 1
                ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
            case "bad" -> AcknowledgeType.REJECT;
            case "renew" -> renewed.add(record.value()) ? AcknowledgeType.RENEW : AcknowledgeType.ACCEPT;
            default -> AcknowledgeType.ACCEPT;
        };
    }

    private static void acknowledged(Map<TopicIdPartition, Set<Long>> offsets, Exception error) {
        String message = error == null ? "" : String.valueOf(error);
        offsets.forEach((partition, told) -> say(
            "{\"event\": \"acknowledged\", \"partition\": %d, \"offsets\": %s, \"error\": \"%s\", "
            + "\"at\": %d}", partition.partition(), new ArrayList<>(new TreeSet<>(told)),
            message.replace('"', '\'').replace('\n', ' '), System.nanoTime()));
    }

    private static void failed(KafkaException error) {
        say("{\"event\": \"error\", \"message\": \"%s\"}", String.valueOf(error).replace('"', '\'').replace('\n', ' '));
    }

    private static void say(String format, Object... values) {
        String line = String.format(format, values) + "\n";
        synchronized (System.out) {
            System.out.print(line);
            System.out.flush();
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            options.put(parts[0], parts[1]);
        }
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                ended.await();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
        say("{\"event\": \"started\"}");
        try {
            new ShareMember(options).run();
        } finally {
            ended.countDown();
        }
    }
}

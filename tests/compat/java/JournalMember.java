// A member of a consumer group with the Java client, in a process of its own: what
// tests/support/group_member_process.py is for the Python clients, with the same options and the same journal
// (tests/support/group_journal.py). Run as a source file: java -cp KAFKA_LIBS JournalMember.java --bootstrap ...

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class JournalMember implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final int RECORDS_PER_COMMIT = 20;
    private static final long NANOS_PER_COMMIT = 200_000_000L;
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private static volatile boolean stopping = false;

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final String topic;
    private final Duration commitTimeout;
    private final FileOutputStream journal;
    private final TreeSet<Integer> owned = new TreeSet<>();
    private final TreeMap<Integer, Long> positions = new TreeMap<>(); // to be committed
    private int uncommitted = 0;
    private long committedAt = 0;

    JournalMember(Map<String, String> options, FileOutputStream journal) {
        int sessionTimeoutMs = Integer.parseInt(options.get("--session-timeout-ms"));
        Properties config = new Properties();
        config.put("bootstrap.servers", options.get("--bootstrap"));
        config.put("group.id", options.get("--group"));
        config.put("client.id", options.get("--name"));
        config.put("group.protocol", options.get("--protocol"));
        if (options.get("--protocol").equals("consumer")) { // then the broker decides of the others
            config.put("group.remote.assignor", options.get("--assignor"));
        } else {
            config.put("partition.assignment.strategy", ASSIGNORS.get(options.get("--assignor")));
            config.put("session.timeout.ms", Integer.toString(sessionTimeoutMs));
            config.put("heartbeat.interval.ms", Integer.toString(sessionTimeoutMs / 5));
        }
        config.put("max.poll.interval.ms", options.get("--max-poll-interval-ms"));
        config.put("max.poll.records", Integer.toString(RECORDS_PER_COMMIT));
        config.put("fetch.max.wait.ms", "100");
        config.put("reconnect.backoff.ms", "20");
        config.put("reconnect.backoff.max.ms", "200");
        // Else a client whose only broker is away forgets its topics, takes them for new ones, and joins again.
        config.put("metadata.recovery.strategy", "none");
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        this.consumer = new KafkaConsumer<>(config);
        this.topic = options.get("--topic");
        this.commitTimeout = Duration.ofMillis(sessionTimeoutMs);
        this.journal = journal;
    }

    void run() {
        consumer.subscribe(List.of(topic), this);
        while (!stopping) {
            for (ConsumerRecord<byte[], byte[]> record : poll()) {
                String value = new String(record.value(), StandardCharsets.US_ASCII);
                write("Processed", "\"partition\": %d, \"offset\": %d, \"value\": \"%s\"",
                    record.partition(), record.offset(), value);
                positions.put(record.partition(), record.offset() + 1);
                uncommitted++;
            }
            boolean late = System.nanoTime() - committedAt > NANOS_PER_COMMIT;
            if (late || uncommitted >= RECORDS_PER_COMMIT) {
                commit();
            }
        }
        commit();
        consumer.close();
        write("Ended", "");
    }

    /** The consumer protocol's client lets an application know that it was fenced while it looked for its offsets. */
    private Iterable<ConsumerRecord<byte[], byte[]>> poll() {
        try {
            return consumer.poll(POLL);
        } catch (UnknownMemberIdException error) {
            System.err.println(error);
            return List.of();
        }
    }

    private void commit() {
        uncommitted = 0;
        committedAt = System.nanoTime();
        if (positions.isEmpty()) {
            return;
        }
        TreeMap<Integer, Long> offsets = new TreeMap<>(positions);
        write("Committing", "\"offsets\": %s", json(offsets));
        Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>();
        offsets.forEach((partition, offset) ->
            wanted.put(new TopicPartition(topic, partition), new OffsetAndMetadata(offset)));
        try {
            consumer.commitSync(wanted, commitTimeout);
        } catch (KafkaException error) {
            write("CommitFailed", "\"offsets\": %s, \"error\": \"%s\"", json(offsets), error.getClass().getName());
            return;
        }
        write("Committed", "\"offsets\": %s", json(offsets));
        positions.entrySet().removeIf(entry -> entry.getValue().equals(offsets.get(entry.getKey())));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        TreeSet<Integer> given = indexes(partitions);
        owned.addAll(given);
        positions.keySet().removeAll(given);
        write("Assigned", "\"generation\": %d, \"member_id\": \"%s\", \"partitions\": %s, \"owned\": %s",
            consumer.groupMetadata().generationId(), consumer.groupMetadata().memberId(), given, owned);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commit();
        taken(partitions, false);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        taken(partitions, true);
    }

    private void taken(Collection<TopicPartition> partitions, boolean lost) {
        TreeSet<Integer> gone = indexes(partitions);
        owned.removeAll(gone);
        positions.keySet().removeAll(gone);
        write("Revoked", "\"partitions\": %s, \"lost\": %s", gone, lost);
    }

    private static TreeSet<Integer> indexes(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::partition).collect(Collectors.toCollection(TreeSet::new));
    }

    private static String json(Map<Integer, Long> offsets) {
        return offsets.entrySet().stream()
            .map(entry -> "\"" + entry.getKey() + "\": " + entry.getValue())
            .collect(Collectors.joining(", ", "{", "}"));
    }

    /** One line in one write; nanoTime is the monotonic clock that Python's time.monotonic() reads. */
    private void write(String event, String format, Object... values) {
        long now = System.nanoTime();
        String time = String.format("%d.%09d", now / 1_000_000_000L, now % 1_000_000_000L);
        String fields = String.format(format, values);
        String line = "{\"event\": \"" + event + "\", \"time_s\": " + time
            + (fields.isEmpty() ? "" : ", " + fields) + "}\n";
        try {
            journal.write(line.getBytes(StandardCharsets.US_ASCII));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int n = 0; n < arguments.length; n += 2) {
            options.put(arguments[n], arguments[n + 1]);
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
        try (FileOutputStream journal = new FileOutputStream(options.get("--journal"))) {
            new JournalMember(options, journal).run();
        } finally {
            ended.countDown();
        }
    }
}

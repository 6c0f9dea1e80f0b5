import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * One consumer on a thread of its own: polls, writes down what happens, and between polls does what it is asked.
 * A member that an exception threw out of poll() stops polling, and can still be asked and closed.
 */
final class GroupMember implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(20);
    private static final int ATTEMPTS = 100;
    private static final Duration CLOSE = Duration.ofSeconds(10);
    /** Events of all members carry numbers from here: what one did before another has the lower number. */
    private static final AtomicLong CLOCK = new AtomicLong();

    private interface Action {
        ObjectNode run() throws Exception;
    }

    private final String name;
    private final JsonNode start;
    private final boolean commitEach;
    private final List<ObjectNode> events = new ArrayList<>();
    private final BlockingQueue<Runnable> asked = new LinkedBlockingQueue<>();
    private final CountDownLatch gate = new CountDownLatch(1);
    private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
    private final CompletableFuture<ObjectNode> ended = new CompletableFuture<>();
    private KafkaConsumer<String, String> consumer;
    private boolean polling = true;
    private volatile CloseOptions closing;

    GroupMember(String name, JsonNode start) {
        this.name = name;
        this.start = start;
        this.commitEach = start.get("commit").asBoolean();
        Thread thread = new Thread(this::live, "member-" + name);
        thread.setDaemon(true);
        thread.start();
    }

    /** The events from number `from` of this member's own list on. */
    ObjectNode events(int from) {
        ObjectNode reply = Json.object();
        ArrayNode rows = reply.putArray("events");
        synchronized (events) {
            events.subList(from, events.size()).forEach(rows::add);
        }
        return reply;
    }

    void event(String kind, ObjectNode event) {
        synchronized (events) {
            events.add(event.put("kind", kind).put("number", CLOCK.incrementAndGet()));
        }
    }

    /** Lets a leader go on that waits in its assignor (`test.gate`). */
    void openGate() {
        gate.countDown();
    }

    void awaitGate() throws InterruptedException {
        gate.await(60, TimeUnit.SECONDS);
    }

    CompletableFuture<ObjectNode> close(String membership) {
        closing = CloseOptions.timeout(CLOSE)
                .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.valueOf(membership));
        return ended;
    }

    /** Does on the member's thread what the request names. */
    CompletableFuture<ObjectNode> ask(JsonNode request) {
        if (closing != null) {
            throw new IllegalStateException(name + " is closed: " + request);
        }
        CompletableFuture<ObjectNode> done = new CompletableFuture<>();
        asked.add(() -> {
            try {
                done.complete(action(request).run());
            } catch (Exception error) {
                done.complete(Json.failure(error));
            }
        });
        return done;
    }

    private Action action(JsonNode request) {
        switch (request.get("what").asText()) {
            case "commit":
                return () -> commit(request.get("offsets"));
            case "commit_async":
                return () -> commitAsync(request.get("offsets"));
            case "committed":
                return () -> {
                    var partitions = new HashSet<>(Json.partitions(request.get("partitions")));
                    return Json.object().set("offsets", Json.offsets(consumer.committed(partitions)));
                };
            case "position":
                return () -> Json.object()
                        .put("offset", consumer.position(Json.partition(request.get("partition"))));
            case "group_metadata":
                return this::groupMetadata;
            case "seek":
                return () -> {
                    consumer.seek(Json.partition(request.get("partition")), request.get("offset").asLong());
                    return Json.object();
                };
            case "enforce_rebalance":
                return () -> {
                    consumer.enforceRebalance("a test wants it");
                    return Json.object();
                };
            case "subscribe":
                return () -> {
                    consumer.subscribe(Json.texts(request.get("topics")), this);
                    return Json.object();
                };
            case "unsubscribe":
                return () -> {
                    consumer.unsubscribe();
                    polling = false; // a consumer without subscription must not be polled
                    return Json.object();
                };
            case "hold":
                return () -> {
                    polling = false;
                    return Json.object();
                };
            case "resume":
                return () -> {
                    polling = true;
                    return Json.object();
                };
            default:
                throw new IllegalArgumentException("unknown request " + request);
        }
    }

    private void live() {
        try {
            Map<String, Object> config = new HashMap<>();
            Json.config(start).forEach((key, value) -> config.put(key.toString(), value));
            config.put(UserDataAssignor.MEMBER, this);
            consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
            subscribe();
        } catch (RuntimeException error) {
            event("error", Json.failure(error));
            polling = false;
        }
        while (closing == null) {
            step();
        }
        leave();
    }

    private void subscribe() {
        if (start.hasNonNull("regex")) {
            consumer.subscribe(new SubscriptionPattern(start.get("regex").asText()), this);
        } else if (start.hasNonNull("pattern")) {
            consumer.subscribe(Pattern.compile(start.get("pattern").asText()), this);
        } else if (start.hasNonNull("assign")) {
            consumer.assign(Json.partitions(start.get("assign")));
        } else {
            consumer.subscribe(Json.texts(start.get("topics")), this);
        }
    }

    private void step() {
        try {
            Runnable next = polling ? asked.poll() : asked.poll(POLL.toMillis(), TimeUnit.MILLISECONDS);
            if (next != null) {
                next.run();
            }
            if (polling) {
                record(consumer.poll(POLL));
                commitProcessed();
            }
        } catch (Exception error) {
            event("error", Json.failure(error));
            polling = false;
        }
    }

    /** A clean end: what was processed is committed, also when a rebalance is under way. */
    private void leave() {
        try {
            if (consumer != null) {
                consumer.pause(consumer.assignment());
                while (polling && !uncommitted.isEmpty()) {
                    step();
                }
                consumer.close(closing);
            }
            ended.complete(Json.object());
        } catch (Exception error) {
            ended.complete(Json.failure(error));
        }
    }

    private void record(ConsumerRecords<String, String> records) {
        if (records.isEmpty()) {
            return;
        }
        ObjectNode event = Json.object();
        ArrayNode rows = event.putArray("records");
        for (ConsumerRecord<String, String> record : records) {
            rows.addArray().add(record.topic()).add(record.partition()).add(record.offset()).add(record.value());
        }
        event("records", event);
        if (commitEach) {
            uncommitted.putAll(records.nextOffsets());
        }
    }

    private void commitProcessed() {
        if (uncommitted.isEmpty()) {
            return;
        }
        try {
            commitSync(uncommitted);
            uncommitted.clear();
        } catch (RebalanceInProgressException error) {
            // With a cooperative assignor records come while the group rebalances: commit after it, or on revocation.
            event("commit_later", Json.failure(error));
        }
    }

    /** As an application of the consumer protocol must: Java does not repeat a commit of an epoch that is over. */
    private void commitSync(Map<TopicPartition, OffsetAndMetadata> offsets) {
        for (int attempt = 1; ; attempt++) {
            try {
                consumer.commitSync(offsets);
                return;
            } catch (CommitFailedException error) {
                if (attempt == ATTEMPTS || !error.getMessage().contains("stale member epoch")) {
                    throw error;
                }
                event("commit_again", Json.failure(error));
            }
        }
    }

    private ObjectNode commit(JsonNode offsets) {
        if (offsets.isNull()) {
            consumer.commitSync();
        } else {
            consumer.commitSync(Json.offsets(offsets));
        }
        return Json.object();
    }

    private ObjectNode commitAsync(JsonNode offsets) {
        consumer.commitAsync(Json.offsets(offsets), (committed, error) -> {
            ObjectNode event = error == null ? Json.object() : Json.failure(error);
            event("committed", event.set("offsets", Json.offsets(committed)));
        });
        return Json.object();
    }

    private ObjectNode groupMetadata() {
        ConsumerGroupMetadata group = consumer.groupMetadata();
        return Json.object().put("group", group.groupId()).put("generation", group.generationId())
                .put("member_id", group.memberId()).put("instance_id", group.groupInstanceId().orElse(null));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        rebalanced("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commitProcessed();
        rebalanced("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        uncommitted.clear(); // somebody else reads them again
        rebalanced("lost", partitions);
    }

    private void rebalanced(String kind, Collection<TopicPartition> partitions) {
        ObjectNode event = groupMetadata();
        event.set("partitions", Json.partitions(partitions));
        event.set("owned", Json.partitions(consumer.assignment()));
        event(kind, event);
    }
}

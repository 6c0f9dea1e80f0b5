import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * A Kafka Streams application with one table: the newest value of each key, none for a key whose value is "gone".
 *
 * <p>StreamsTable BOOTSTRAP APPLICATION INPUT STATE-FOLDER CHANGELOG-CONFIGS(JSON). It answers each line of JSON with
 * one: {"do": "state"} with its state and how many records it has restored, {"do": "table"} with the table. It ends
 * with its input.
 */
public final class StreamsTable {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String TABLE = "table";

    public static void main(String[] args) throws Exception {
        Map<String, String> changelog = JSON.readValue(args[4], JSON.getTypeFactory()
                .constructMapType(Map.class, String.class, String.class));
        Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, args[3]);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        properties.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[2], Consumed.with(Serdes.String(), Serdes.String()))
                .groupByKey()
                .reduce(
                        (older, newer) -> newer.equals("gone") ? null : newer,
                        Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(TABLE)
                                .withKeySerde(Serdes.String())
                                .withValueSerde(Serdes.String())
                                .withCachingDisabled()
                                .withLoggingEnabled(changelog));
        AtomicLong restored = new AtomicLong();
        try (KafkaStreams streams = new KafkaStreams(builder.build(), properties)) {
            streams.setGlobalStateRestoreListener(counting(restored));
            streams.start();
            BufferedReader requests =
                    new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            String line;
            while ((line = requests.readLine()) != null) {
                System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line), streams, restored)));
                System.out.flush();
            }
            streams.close(Duration.ofSeconds(60));
        }
    }

    private static ObjectNode answer(JsonNode request, KafkaStreams streams, AtomicLong restored) {
        ObjectNode reply = JSON.createObjectNode();
        if (request.get("do").asText().equals("state")) {
            return reply.put("state", streams.state().toString()).put("restored", restored.get());
        }
        ReadOnlyKeyValueStore<String, String> store = streams.store(
                StoreQueryParameters.fromNameAndType(TABLE, QueryableStoreTypes.keyValueStore()));
        ObjectNode table = reply.putObject("table");
        try (KeyValueIterator<String, String> all = store.all()) {
            while (all.hasNext()) {
                KeyValue<String, String> one = all.next();
                table.put(one.key, one.value);
            }
        }
        return reply;
    }

    private static StateRestoreListener counting(AtomicLong restored) {
        return new StateRestoreListener() {
            @Override
            public void onRestoreStart(TopicPartition partition, String store, long start, long end) {}

            @Override
            public void onBatchRestored(TopicPartition partition, String store, long end, long count) {
                restored.addAndGet(count);
            }

            @Override
            public void onRestoreEnd(TopicPartition partition, String store, long total) {}
        };
    }
}

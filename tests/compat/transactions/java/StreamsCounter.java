import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * An instance of a Kafka Streams application with exactly_once_v2: it writes how often each value has come, one record
 * "value count" for each record that it reads.
 *
 * <p>StreamsCounter BOOTSTRAP APPLICATION INPUT OUTPUT STATE-FOLDER. The values go through a repartition topic, so
 * that a record passes two transactions and a state with a changelog. It ends with SIGTERM.
 */
public final class StreamsCounter {
    private StreamsCounter() {}

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        properties.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        properties.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 6_000);
        properties.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 500);
        properties.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 5_000);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[2], Consumed.with(Serdes.String(), Serdes.String()))
                .groupBy((key, value) -> value, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts").withCachingDisabled())
                .toStream()
                .mapValues((value, count) -> value + " " + count)
                .to(args[3], Produced.with(Serdes.String(), Serdes.String()));
        CountDownLatch ended = new CountDownLatch(1);
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        // As applications are told to do: a thread whose task has gone to another instance begins again.
        streams.setUncaughtExceptionHandler(error -> StreamThreadExceptionResponse.REPLACE_THREAD);
        streams.setStateListener((now, before) -> System.out.println(now));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(60));
            ended.countDown();
        }));
        streams.start();
        ended.await();
    }
}

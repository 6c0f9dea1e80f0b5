import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** Kafka's values to and from JSON. A partition is [topic, number]; bytes travel as base64. */
final class Json {
    static final ObjectMapper MAPPER = new ObjectMapper();
    private static final Comparator<TopicPartition> BY_NAME =
            Comparator.comparing(TopicPartition::topic).thenComparingInt(TopicPartition::partition);

    private Json() {}

    static ObjectNode object() {
        return MAPPER.createObjectNode();
    }

    static List<String> texts(JsonNode nodes) {
        List<String> texts = new ArrayList<>();
        nodes.forEach(node -> texts.add(node.asText()));
        return texts;
    }

    static Properties config(JsonNode request) {
        Properties properties = new Properties();
        request.get("config").properties()
                .forEach(entry -> properties.put(entry.getKey(), entry.getValue().asText()));
        return properties;
    }

    static TopicPartition partition(JsonNode node) {
        return new TopicPartition(node.get(0).asText(), node.get(1).asInt());
    }

    static List<TopicPartition> partitions(JsonNode nodes) {
        List<TopicPartition> partitions = new ArrayList<>();
        nodes.forEach(node -> partitions.add(partition(node)));
        return partitions;
    }

    static ArrayNode partitions(Collection<TopicPartition> partitions) {
        ArrayNode nodes = MAPPER.createArrayNode();
        partitions.stream().sorted(BY_NAME).forEach(one -> nodes.addArray().add(one.topic()).add(one.partition()));
        return nodes;
    }

    /** From rows of topic, partition, offset, metadata or null, leader epoch or null. */
    static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode rows) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new LinkedHashMap<>();
        for (JsonNode row : rows) {
            Optional<Integer> epoch = row.get(4).isNull() ? Optional.empty() : Optional.of(row.get(4).asInt());
            String metadata = row.get(3).isNull() ? null : row.get(3).asText();
            offsets.put(partition(row), new OffsetAndMetadata(row.get(2).asLong(), epoch, metadata));
        }
        return offsets;
    }

    /** To such rows; where nothing was committed there is no row. */
    static ArrayNode offsets(Map<TopicPartition, OffsetAndMetadata> offsets) {
        ArrayNode rows = MAPPER.createArrayNode();
        Map<TopicPartition, OffsetAndMetadata> present = new HashMap<>(offsets);
        present.values().removeIf(one -> one == null);
        present.keySet().stream().sorted(BY_NAME).forEach(partition -> {
            OffsetAndMetadata committed = present.get(partition);
            rows.addArray().add(partition.topic()).add(partition.partition()).add(committed.offset())
                    .add(committed.metadata()).add(committed.leaderEpoch().orElse(null));
        });
        return rows;
    }

    static ObjectNode failure(Throwable error) {
        Throwable cause = error;
        while ((cause instanceof ExecutionException || cause instanceof CompletionException)
                && cause.getCause() != null) {
            cause = cause.getCause();
        }
        return object().put("error", cause.getClass().getSimpleName())
                .put("message", String.valueOf(cause.getMessage()));
    }

    static byte[] bytes(String base64) {
        return base64 == null ? null : Base64.getDecoder().decode(base64);
    }

    static String base64(ByteBuffer bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(array(bytes));
    }

    static byte[] array(ByteBuffer bytes) {
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return copy;
    }
}

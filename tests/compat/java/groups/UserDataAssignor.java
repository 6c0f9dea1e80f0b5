import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/**
 * Deals partitions out in turn, and makes visible what the group carries for its assignors: the leader writes down
 * every member's user data, and sends each member its id and that data; the member writes down what arrives.
 */
public final class UserDataAssignor implements ConsumerPartitionAssignor, Configurable {
    /** The GroupMember whose assignor this is. */
    static final String MEMBER = "test.member";
    /** This member's user data in base64; without it there is none. */
    static final String USER_DATA = "test.user.data";
    /** When set, the leader waits in assign() until the test opens its gate. */
    static final String GATE = "test.gate";

    private GroupMember member;
    private byte[] userData;
    private boolean gated;

    @Override
    public void configure(Map<String, ?> config) {
        member = (GroupMember) config.get(MEMBER);
        userData = Json.bytes((String) config.get(USER_DATA));
        gated = config.get(GATE) != null;
    }

    @Override
    public String name() {
        return "user-data";
    }

    @Override
    public ByteBuffer subscriptionUserData(Set<String> topics) {
        return userData == null ? null : ByteBuffer.wrap(userData);
    }

    @Override
    public GroupAssignment assign(Cluster cluster, GroupSubscription group) {
        Map<String, Subscription> members = new TreeMap<>(group.groupSubscription());
        ObjectNode event = Json.object();
        ObjectNode seen = event.putObject("user_data");
        members.forEach((id, subscription) -> seen.put(id, Json.base64(subscription.userData())));
        member.event("leads", event);
        if (gated) {
            try {
                member.awaitGate();
            } catch (InterruptedException error) {
                throw new KafkaException(error);
            }
        }
        Map<String, Assignment> assignments = new HashMap<>();
        Map<String, List<TopicPartition>> dealt = deal(cluster, members);
        members.forEach((id, subscription) ->
                assignments.put(id, new Assignment(dealt.get(id), reply(id, subscription.userData()))));
        return new GroupAssignment(assignments);
    }

    @Override
    public void onAssignment(Assignment assignment, ConsumerGroupMetadata group) {
        ObjectNode event = Json.object().put("member_id", group.memberId()).put("generation", group.generationId())
                .put("user_data", Json.base64(assignment.userData()));
        ArrayNode partitions = Json.partitions(assignment.partitions());
        member.event("assignment", event.set("partitions", partitions));
    }

    private static Map<String, List<TopicPartition>> deal(Cluster cluster, Map<String, Subscription> members) {
        Map<String, List<TopicPartition>> dealt = new HashMap<>();
        List<String> ids = new ArrayList<>(members.keySet());
        ids.forEach(id -> dealt.put(id, new ArrayList<>()));
        int turn = 0;
        for (String topic : members.values().iterator().next().topics()) {
            for (int number = 0; number < cluster.partitionCountForTopic(topic); number++) {
                dealt.get(ids.get(turn++ % ids.size())).add(new TopicPartition(topic, number));
            }
        }
        return dealt;
    }

    private static ByteBuffer reply(String id, ByteBuffer userData) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        bytes.writeBytes(id.getBytes(StandardCharsets.UTF_8));
        bytes.write(0);
        bytes.writeBytes(userData == null ? new byte[0] : Json.array(userData));
        return ByteBuffer.wrap(bytes.toByteArray());
    }
}

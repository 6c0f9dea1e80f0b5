import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ClassicGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.DescribeClassicGroupsOptions;
import org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListConsumerGroupsOptions;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclOperation;

/** What the Java AdminClient does with groups. One client per configuration, kept. */
final class GroupAdmin {
    private static final Map<String, Admin> CLIENTS = new ConcurrentHashMap<>();

    private GroupAdmin() {}

    static ObjectNode run(JsonNode request) throws Exception {
        String key = request.get("config").toString();
        Admin admin = CLIENTS.computeIfAbsent(key, unused -> Admin.create(Json.config(request)));
        switch (request.get("what").asText()) {
            case "list_groups":
                return list(admin, request);
            case "list_consumer_groups":
                return listConsumer(admin, request);
            case "describe_consumer_groups":
                return describe(admin, request);
            case "describe_classic_groups":
                return describeClassic(admin, request);
            case "list_offsets":
                return listOffsets(admin, request);
            case "alter_offsets":
                return each(admin.alterConsumerGroupOffsets(group(request), Json.offsets(request.get("offsets")))
                        ::partitionResult, Json.offsets(request.get("offsets")).keySet());
            case "delete_offsets":
                return deleteOffsets(admin, request);
            case "delete_groups":
                return deleteGroups(admin, request);
            case "remove_members":
                return removeMembers(admin, request);
            case "grow_topic":
                admin.createPartitions(Map.of(
                        request.get("topic").asText(), NewPartitions.increaseTo(request.get("partitions").asInt())))
                        .all().get();
                return Json.object();
            default:
                throw new IllegalArgumentException("unknown request " + request);
        }
    }

    private static String group(JsonNode request) {
        return request.get("group").asText();
    }

    private static ObjectNode list(Admin admin, JsonNode request) throws Exception {
        ListGroupsOptions options = new ListGroupsOptions().inGroupStates(states(request)).withTypes(types(request));
        ObjectNode groups = Json.object();
        for (GroupListing listing : admin.listGroups(options).all().get()) {
            groups.putObject(listing.groupId())
                    .put("state", listing.groupState().map(GroupState::toString).orElse(null))
                    .put("type", listing.type().map(GroupType::toString).orElse(null))
                    .put("protocol_type", listing.protocol())
                    .put("simple", listing.isSimpleConsumerGroup());
        }
        return Json.object().set("groups", groups);
    }

    @SuppressWarnings("deprecation") // of Kafka 4.1; what older tools call
    private static ObjectNode listConsumer(Admin admin, JsonNode request) throws Exception {
        ListConsumerGroupsOptions options =
                new ListConsumerGroupsOptions().inGroupStates(states(request)).withTypes(types(request));
        ObjectNode groups = Json.object();
        for (ConsumerGroupListing listing : admin.listConsumerGroups(options).all().get()) {
            groups.putObject(listing.groupId())
                    .put("state", listing.groupState().map(GroupState::toString).orElse(null))
                    .put("type", listing.type().map(GroupType::toString).orElse(null))
                    .put("simple", listing.isSimpleConsumerGroup());
        }
        return Json.object().set("groups", groups);
    }

    private static Set<GroupState> states(JsonNode request) {
        return Json.texts(request.get("states")).stream().map(GroupState::parse).collect(Collectors.toSet());
    }

    private static Set<GroupType> types(JsonNode request) {
        return Json.texts(request.get("types")).stream().map(GroupType::parse).collect(Collectors.toSet());
    }

    private static ObjectNode describe(Admin admin, JsonNode request) throws Exception {
        DescribeConsumerGroupsOptions options = new DescribeConsumerGroupsOptions()
                .includeAuthorizedOperations(request.get("operations").asBoolean());
        ObjectNode groups = Json.object();
        for (var one : admin.describeConsumerGroups(Json.texts(request.get("groups")), options)
                .describedGroups().entrySet()) {
            try {
                ConsumerGroupDescription group = one.getValue().get();
                ObjectNode node = groups.putObject(one.getKey()).put("state", group.groupState().toString())
                        .put("type", group.type().toString()).put("assignor", group.partitionAssignor())
                        .put("simple", group.isSimpleConsumerGroup());
                rest(node, group.members(), group.coordinator(), group.authorizedOperations());
            } catch (ExecutionException error) {
                groups.set(one.getKey(), Json.failure(error));
            }
        }
        return Json.object().set("groups", groups);
    }

    private static ObjectNode describeClassic(Admin admin, JsonNode request) throws Exception {
        DescribeClassicGroupsOptions options = new DescribeClassicGroupsOptions()
                .includeAuthorizedOperations(request.get("operations").asBoolean());
        ObjectNode groups = Json.object();
        for (var one : admin.describeClassicGroups(Json.texts(request.get("groups")), options)
                .describedGroups().entrySet()) {
            try {
                ClassicGroupDescription group = one.getValue().get();
                ObjectNode node = groups.putObject(one.getKey()).put("state", group.state().toString())
                        .put("protocol_type", group.protocol()).put("protocol", group.protocolData());
                rest(node, group.members(), group.coordinator(), group.authorizedOperations());
            } catch (ExecutionException error) {
                groups.set(one.getKey(), Json.failure(error));
            }
        }
        return Json.object().set("groups", groups);
    }

    private static void rest(
            ObjectNode node, Collection<MemberDescription> members, Node coordinator, Set<AclOperation> operations) {
        node.put("coordinator", coordinator.host() + ":" + coordinator.port());
        if (operations != null) {
            ArrayNode names = node.putArray("operations");
            operations.stream().map(AclOperation::name).sorted().forEach(names::add);
        }
        ArrayNode rows = node.putArray("members");
        for (MemberDescription member : members) {
            rows.addObject().put("member_id", member.consumerId()).put("client_id", member.clientId())
                    .put("host", member.host()).put("instance_id", member.groupInstanceId().orElse(null))
                    .set("partitions", Json.partitions(member.assignment().topicPartitions()));
        }
    }

    /** Offsets of several groups in one call; a group's partitions may be null, which means all. */
    private static ObjectNode listOffsets(Admin admin, JsonNode request) throws Exception {
        Map<String, ListConsumerGroupOffsetsSpec> specs = new TreeMap<>();
        request.get("groups").properties().forEach(entry -> {
            ListConsumerGroupOffsetsSpec spec = new ListConsumerGroupOffsetsSpec();
            specs.put(entry.getKey(), entry.getValue().isNull()
                    ? spec : spec.topicPartitions(Json.partitions(entry.getValue())));
        });
        ObjectNode groups = Json.object();
        admin.listConsumerGroupOffsets(specs).all().get()
                .forEach((group, offsets) -> groups.set(group, Json.offsets(offsets)));
        return Json.object().set("groups", groups);
    }

    private static ObjectNode deleteOffsets(Admin admin, JsonNode request) throws Exception {
        Set<TopicPartition> partitions = new HashSet<>(Json.partitions(request.get("partitions")));
        return each(admin.deleteConsumerGroupOffsets(group(request), partitions)::partitionResult, partitions);
    }

    private interface Result {
        KafkaFuture<Void> of(TopicPartition partition);
    }

    /** For each partition whether it worked: rows of topic, partition, and null or the error. */
    private static ObjectNode each(Result results, Set<TopicPartition> partitions) throws Exception {
        ObjectNode reply = Json.object();
        ArrayNode rows = reply.putArray("results");
        for (TopicPartition partition : partitions) {
            rows.addArray().add(partition.topic()).add(partition.partition()).add(outcome(results.of(partition)));
        }
        return reply;
    }

    private static ObjectNode deleteGroups(Admin admin, JsonNode request) throws Exception {
        Map<String, String> outcomes = new HashMap<>();
        for (var one : admin.deleteConsumerGroups(Json.texts(request.get("groups"))).deletedGroups().entrySet()) {
            outcomes.put(one.getKey(), outcome(one.getValue()));
        }
        return Json.object().set("groups", Json.MAPPER.valueToTree(outcomes));
    }

    private static ObjectNode removeMembers(Admin admin, JsonNode request) throws Exception {
        RemoveMembersFromConsumerGroupOptions options;
        if (request.get("instances").isNull()) {
            options = new RemoveMembersFromConsumerGroupOptions();
        } else {
            List<MemberToRemove> members = Json.texts(request.get("instances")).stream()
                    .map(MemberToRemove::new).collect(Collectors.toList());
            options = new RemoveMembersFromConsumerGroupOptions(members);
        }
        options.reason("a test wants it");
        admin.removeMembersFromConsumerGroup(group(request), options).all().get();
        return Json.object();
    }

    private static String outcome(KafkaFuture<Void> future) throws InterruptedException {
        try {
            future.get();
            return null;
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }
}

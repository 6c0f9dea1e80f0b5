"""The leaders that refusals name: only those that the client can reach (KIP-951)."""

from kafscale.cluster.view import ClusterView
from kafscale.formats.topic_record import encode_broker_record
from kafscale.metadata import keys
from kafscale.metadata.model import BrokerRecord, Endpoint, ListenerName
from kafscale.metadata.store import Changes, KeyValue
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.node_endpoints import CurrentLeader, NodeEndpoint
from kafscale.serving.new_leaders import NOT_KNOWN, NewLeaders
from tests.serving.test_leader_changes import OTHER, TOPIC, led_by, view_with_topic

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def live(view: ClusterView, *listeners: ListenerName) -> None:
    """The other broker, which clients reach at these listeners."""
    endpoints = {one: Endpoint("there", 9000 + place) for place, one in enumerate(listeners)}
    record = BrokerRecord(broker_id=OTHER, host="", port=0, listeners=endpoints, rack="b")
    change = KeyValue(key=keys.broker(OTHER), value=encode_broker_record(record), mod_revision=5)
    view.apply(keys.BROKERS, Changes(puts_and_deletes=(change,), revision=5))


def test_a_leader_is_named_with_its_address() -> None:
    view = view_with_topic()
    led_by(view, OTHER, 3)
    live(view, ListenerName.EXTERNAL, ListenerName.PLAINTEXT)
    leaders = NewLeaders(view, ListenerName.PLAINTEXT)
    assert leaders.of("orders", 0, NOT_LEADER) == CurrentLeader(OTHER, 3)
    assert leaders.of_topic_id(TOPIC.topic_id, 0, NOT_LEADER) == CurrentLeader(OTHER, 3)
    assert leaders.endpoints == (NodeEndpoint(OTHER, "there", 9001, "b"),)


def test_other_errors_name_no_leader() -> None:
    view = view_with_topic()
    led_by(view, OTHER, 3)
    live(view, ListenerName.PLAINTEXT)
    leaders = NewLeaders(view, ListenerName.PLAINTEXT)
    assert leaders.of("orders", 0, ErrorCode.REQUEST_TIMED_OUT) is None
    assert leaders.of_topic_id(TOPIC.topic_id, 0, ErrorCode.NONE) == NOT_KNOWN
    assert leaders.endpoints == ()


def test_a_leader_is_not_named_where_none_can_be_reached() -> None:
    view = view_with_topic()
    leaders = NewLeaders(view, ListenerName.PLAINTEXT)
    assert leaders.of("orders", 0, NOT_LEADER) is None  # no leader
    led_by(view, OTHER, 3)
    assert leaders.of("orders", 0, NOT_LEADER) is None  # a leader whose lease has ended
    live(view, ListenerName.EXTERNAL)
    assert leaders.of("orders", 0, NOT_LEADER) is None  # not at the client's listener
    assert leaders.of("another", 0, NOT_LEADER) is None
    assert leaders.endpoints == ()

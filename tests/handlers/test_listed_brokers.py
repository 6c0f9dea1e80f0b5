"""Which brokers Metadata names while leases end and begin."""

from hypothesis import given
from hypothesis import strategies as st

from kafscale.handlers.listed_brokers import ListedBrokers
from kafscale.metadata import keys
from kafscale.metadata.model import BrokerRecord, BrokerState
from kafscale.metadata.store import Changes, Delete, KeyValue, Snapshot
from kafscale.metadata.topic_record import encode_broker_record
from kafscale.metadata.view import ClusterView

KEEP_MS = 10_000


class Scene:
    """A view, the brokers that are named by it, and the time."""

    def __init__(self) -> None:
        self.now_ms = 5_000
        self.view = ClusterView("cluster")
        self.listed = ListedBrokers(self.view, KEEP_MS, lambda: self.now_ms)

    def registers(self, *broker_ids: int, state: BrokerState = BrokerState.RUNNING, host: str = "h") -> None:
        for broker_id in broker_ids:
            record = BrokerRecord(broker_id=broker_id, host=host, port=9092, rack=None, state=state)
            item = KeyValue(key=keys.broker(broker_id), value=encode_broker_record(record), mod_revision=1)
            self.view.apply(keys.BROKERS, Changes(puts_and_deletes=(item,), revision=2))

    def goes(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            gone = Delete(keys.broker(broker_id))
            self.view.apply(keys.BROKERS, Changes(puts_and_deletes=(gone,), revision=2))

    def named(self) -> list[int]:
        return [record.broker_id for record in self.listed.brokers()]


def test_all_leases_end_at_once_and_everybody_registers_again() -> None:
    """librdkafka heard of one broker alone, and gave up the others with what was on its way to them."""
    scene = Scene()
    scene.registers(1, 2, 3)
    scene.view.apply(keys.BROKERS, Snapshot(items=(), revision=3))
    assert scene.named() == [1, 2, 3]
    scene.registers(2)
    assert scene.named() == [1, 2, 3]
    assert [record.broker_id for record in scene.view.brokers()] == [2], "only that one leads and coordinates"
    scene.now_ms += KEEP_MS - 1
    assert scene.named() == [1, 2, 3]
    scene.now_ms += 1
    assert scene.named() == [2]


def test_a_broker_that_says_that_it_stops_is_named_no_longer_than_it_lives() -> None:
    scene = Scene()
    scene.registers(1, 2)
    scene.registers(1, state=BrokerState.STOPPING)
    assert scene.named() == [1, 2]
    scene.goes(1)
    assert scene.named() == [2]


def test_a_broker_that_comes_back_elsewhere_is_named_where_it_is() -> None:
    scene = Scene()
    scene.registers(1, 2)
    scene.goes(1)
    scene.registers(1, state=BrokerState.STARTING, host="new")
    assert [(record.broker_id, record.host) for record in scene.listed.brokers()] == [(1, "h"), (2, "h")]
    scene.registers(1, host="new")
    assert [(record.broker_id, record.host) for record in scene.listed.brokers()] == [(1, "new"), (2, "h")]


def test_a_broker_that_never_ran_is_not_named() -> None:
    scene = Scene()
    scene.registers(1, state=BrokerState.STARTING)
    assert scene.named() == []
    scene.goes(1)
    assert scene.named() == []


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([*BrokerState, None]), st.integers(0, KEEP_MS)),
        max_size=30,
    )
)
def test_those_that_live_and_those_that_ran_until_a_moment_ago(
    events: list[tuple[int, BrokerState | None, int]],
) -> None:
    scene = Scene()
    states: dict[int, BrokerState] = {}
    ran_until_ms: dict[int, int] = {}
    for broker_id, state, pause_ms in events:
        scene.now_ms += pause_ms
        # Starting, it is as good as away: clients may not connect to it yet.
        if states.get(broker_id) is BrokerState.RUNNING and state in (None, BrokerState.STARTING):
            ran_until_ms[broker_id] = scene.now_ms
        if state is None:
            states.pop(broker_id, None)
            scene.goes(broker_id)
        else:
            states[broker_id] = state
            scene.registers(broker_id, state=state)
            if state is not BrokerState.STARTING:
                ran_until_ms.pop(broker_id, None)
        live = {each for each, now in states.items() if now is not BrokerState.STARTING}
        lately = {each for each, until in ran_until_ms.items() if scene.now_ms < until + KEEP_MS}
        assert scene.named() == sorted(live | lately)

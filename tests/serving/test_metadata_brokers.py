"""Which brokers Metadata names while leases end and begin."""

from hypothesis import given
from hypothesis import strategies as st

from kafscale.cluster.view import ClusterView
from kafscale.formats.topic_record import encode_broker_record
from kafscale.metadata import keys
from kafscale.metadata.model import BrokerRecord, BrokerState
from kafscale.metadata.store import Changes, Delete, KeyValue, Snapshot
from kafscale.metadata.store_contact import SETTLING_MS, StoreContact
from kafscale.serving.metadata_brokers import IN_DOUBT_MS, MetadataBrokers

KEEP_MS = 10_000
MYSELF = 9


class Scene:
    """A view, the brokers that are named by it, the time, and a store that answers unless it is away."""

    def __init__(self) -> None:
        self.now_ms = 5_000
        self.view = ClusterView("cluster")
        self.contact = StoreContact(KEEP_MS, lambda: self.now_ms)
        self.listed = MetadataBrokers(
            self.view, lambda: record(MYSELF), KEEP_MS, self.contact, lambda: self.now_ms
        )

    def passes(self, ms: int, *, store_is_away: bool = False) -> None:
        while ms > 0:
            step_ms = ms if store_is_away else min(ms, KEEP_MS // 4)
            self.now_ms += step_ms
            ms -= step_ms
            if not store_is_away:
                self.contact.answered(self.now_ms)

    def registers(self, *broker_ids: int, state: BrokerState = BrokerState.RUNNING, host: str = "") -> None:
        for broker_id in broker_ids:
            value = encode_broker_record(record(broker_id, state, host))
            item = KeyValue(key=keys.broker(broker_id), value=value, mod_revision=1)
            self.view.apply(keys.BROKERS, Changes(puts_and_deletes=(item,), revision=2))

    def goes(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            gone = Delete(keys.broker(broker_id))
            self.view.apply(keys.BROKERS, Changes(puts_and_deletes=(gone,), revision=2))

    def named(self) -> list[int]:
        return [each.broker_id for each in self.listed.brokers()]

    def named_others(self) -> list[int]:
        return [each for each in self.named() if each != MYSELF]


def record(broker_id: int, state: BrokerState = BrokerState.RUNNING, host: str = "") -> BrokerRecord:
    return BrokerRecord(broker_id=broker_id, host=host or f"h{broker_id}", port=9092, state=state)


def test_broker_without_any_registration_names_itself() -> None:
    """Once Metadata named no broker at all, and librdkafka had none left to ask."""
    scene = Scene()
    assert scene.named() == [MYSELF]
    assert scene.listed.controller_id() == MYSELF
    scene.registers(MYSELF, state=BrokerState.STARTING)
    assert [(each.broker_id, each.state) for each in scene.listed.live()] == [(MYSELF, BrokerState.RUNNING)]


def test_broker_that_lost_its_lease_names_itself() -> None:
    scene = Scene()
    scene.registers(1, MYSELF)
    scene.goes(MYSELF)
    scene.passes(10 * IN_DOUBT_MS)
    assert scene.named() == [1, MYSELF]
    assert [each.broker_id for each in scene.listed.live()] == [1, MYSELF]


def test_controller_is_the_first_of_those_that_live() -> None:
    scene = Scene()
    scene.registers(4, 2)
    assert scene.listed.controller_id() == 2
    scene.goes(2)
    assert scene.named_others() == [2, 4]
    assert scene.listed.controller_id() == 4


def test_all_leases_end_in_an_outage_and_come_again_slowly() -> None:
    """librdkafka heard of one broker alone, and gave up the others with what was in flight to them."""
    scene = Scene()
    scene.registers(1, 2, 3)
    scene.passes(KEEP_MS + 1, store_is_away=True)
    scene.passes(1)
    scene.view.apply(keys.BROKERS, Snapshot(items=(), revision=3))
    assert scene.named_others() == [1, 2, 3]
    scene.registers(2)
    scene.passes(IN_DOUBT_MS // 2)
    assert scene.named_others() == [1, 2, 3]
    assert [each.broker_id for each in scene.view.brokers()] == [2], "only that one leads and coordinates"
    scene.registers(3)
    scene.passes(IN_DOUBT_MS // 2)
    assert scene.named_others() == [2, 3]


def test_lease_that_ends_during_a_silence_is_in_doubt() -> None:
    scene = Scene()
    scene.registers(1, 2)
    scene.passes(KEEP_MS // 2, store_is_away=True)
    scene.goes(1)
    scene.passes(IN_DOUBT_MS - 1)
    assert scene.named_others() == [1, 2]
    scene.passes(1)
    assert scene.named_others() == [2]


def test_broker_that_dies_under_a_store_that_answers_goes_soon() -> None:
    scene = Scene()
    scene.registers(1, 2)
    scene.passes(KEEP_MS)
    scene.goes(1)
    scene.passes(KEEP_MS - 1)
    assert scene.named_others() == [1, 2]
    scene.passes(1)
    assert scene.named_others() == [2]


def test_broker_that_dies_long_after_an_outage_goes_soon() -> None:
    scene = Scene()
    scene.registers(1, 2)
    scene.passes(KEEP_MS, store_is_away=True)
    scene.passes(2 * KEEP_MS + SETTLING_MS)
    scene.goes(1)
    scene.passes(KEEP_MS)
    assert scene.named_others() == [2]


def test_broker_that_said_that_it_stops_goes_with_its_lease() -> None:
    scene = Scene()
    scene.registers(1, 2)
    scene.registers(1, state=BrokerState.STOPPING)
    assert scene.named_others() == [1, 2]
    scene.passes(KEEP_MS, store_is_away=True)
    scene.goes(1)
    assert scene.named_others() == [2]


def test_broker_at_the_address_of_one_that_went_takes_its_place() -> None:
    scene = Scene()
    scene.registers(1, 2)
    scene.passes(KEEP_MS, store_is_away=True)
    scene.goes(1)
    scene.registers(3, host="h1")
    assert scene.named_others() == [2, 3]


def test_broker_that_comes_back_elsewhere_is_named_where_it_is() -> None:
    scene = Scene()
    scene.registers(1, 2)
    scene.goes(1)
    scene.registers(1, state=BrokerState.STARTING, host="new")
    assert [each.host for each in scene.listed.brokers() if each.broker_id == 1] == ["h1"]
    scene.registers(1, host="new")
    assert [each.host for each in scene.listed.brokers() if each.broker_id == 1] == ["new"]


def test_broker_that_never_ran_is_not_named() -> None:
    scene = Scene()
    scene.registers(1, state=BrokerState.STARTING)
    assert scene.named_others() == []
    scene.goes(1)
    assert scene.named_others() == []


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from([*BrokerState, None]),
            st.integers(0, KEEP_MS),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_named_are_the_live_and_those_that_ran_a_while_ago(
    events: list[tuple[int, BrokerState | None, int, bool]],
) -> None:
    scene = Scene()
    states: dict[int, BrokerState] = {}
    named_until_ms: dict[int, int] = {}
    for broker_id, state, pause_ms, store_is_away in events:
        scene.passes(pause_ms, store_is_away=store_is_away)
        # Starting, it is as good as away: clients may not connect to it yet.
        if states.get(broker_id) is BrokerState.RUNNING and state in (None, BrokerState.STARTING):
            keep_ms = IN_DOUBT_MS if scene.contact.was_interrupted else KEEP_MS
            named_until_ms[broker_id] = scene.now_ms + keep_ms
        if state is None:
            states.pop(broker_id, None)
            scene.goes(broker_id)
        else:
            states[broker_id] = state
            scene.registers(broker_id, state=state)
            if state is not BrokerState.STARTING:
                named_until_ms.pop(broker_id, None)
        live = {each for each, now in states.items() if now is not BrokerState.STARTING}
        lately = {each for each, until_ms in named_until_ms.items() if scene.now_ms < until_ms}
        assert scene.named() == [*sorted(live | lately), MYSELF]

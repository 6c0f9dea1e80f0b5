"""Finalizing levels: by Kafka's rules, never downwards, once and for every broker, whatever the store answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from kafscale.cluster.feature_updates import FeatureUpdate, FeatureUpdates, UpgradeType, raise_level
from kafscale.cluster.view import ClusterView
from kafscale.cluster.view_feeder import ClusterViewFeeder
from kafscale.formats.features import SEGMENT_FORMAT, SUPPORTED, encode_level
from kafscale.formats.topic_record import encode_broker_record
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import BrokerRecord, BrokerState, FeatureRange
from kafscale.metadata.store import Compare, Delete, MetadataStore, Operation, Put, TransactionResult
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from tests.support.faults import ERRORS, Away, Fault, Fuse, FusedMetadataStore
from tests.support.virtual_time import run_virtually
from tests.support.waiting import PATIENCE_MS

TIMEOUT_MS = PATIENCE_MS
UPGRADE, SAFE, UNSAFE = UpgradeType
TO_2 = FeatureUpdate(feature=SEGMENT_FORMAT, level=2)


def to(level: int, upgrade_type: int = UPGRADE, feature: str = SEGMENT_FORMAT) -> FeatureUpdate:
    return FeatureUpdate(feature=feature, level=level, upgrade_type=upgrade_type)


async def live(
    store: MetadataStore,
    broker_id: int,
    features: dict[str, FeatureRange] | None,
    state: BrokerState = BrokerState.RUNNING,
) -> None:
    record = BrokerRecord(broker_id=broker_id, host="h", port=1, features=features or {}, state=state)
    await store.transact([], [Put(keys.broker(broker_id), encode_broker_record(record))])


@asynccontextmanager
async def watching(store: MetadataStore) -> AsyncIterator[ClusterView]:
    view = ClusterView("cluster")
    feeder = asyncio.create_task(ClusterViewFeeder(store, view).run())
    await view.ready()
    try:
        yield view
    finally:
        feeder.cancel()
        await asyncio.gather(feeder, return_exceptions=True)


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    """That of a cluster of two brokers of this release."""
    store = MemoryStore()
    for broker_id in (1, 2):
        await live(store, broker_id, dict(SUPPORTED))
    yield store
    await store.close()


@pytest.fixture
async def view(store: MemoryStore) -> AsyncIterator[ClusterView]:
    async with watching(store) as view:
        yield view


@pytest.fixture
def updates(store: MemoryStore, view: ClusterView) -> FeatureUpdates:
    return FeatureUpdates(store, view, retry_delay_sec=0.001)


async def refused(updates: FeatureUpdates, *wanted: FeatureUpdate, validate_only: bool = False) -> str:
    with pytest.raises(KafkaError) as refusal:
        await updates.update(wanted, timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    assert refusal.value.code is ErrorCode.INVALID_UPDATE_VERSION
    prefix = "The update failed for all features since the following feature had an error: "
    assert refusal.value.message.startswith(prefix)
    return refusal.value.message.removeprefix(prefix)


async def stored(store: MetadataStore) -> dict[str, bytes]:
    return {item.key: item.value for item in (await store.range(keys.FEATURES)).items}


async def test_this_broker_and_every_other_sees_a_finalized_level(
    store: MemoryStore, view: ClusterView, updates: FeatureUpdates
) -> None:
    async with watching(store) as other:
        await updates.update([TO_2], timeout_ms=TIMEOUT_MS)
        assert view.feature_level(SEGMENT_FORMAT) == 2
        await other.wait_until(lambda: other.feature_level(SEGMENT_FORMAT) == 2)
        assert other.finalized_features() == view.finalized_features()
    async with watching(store) as later:
        assert later.finalized_features() == view.finalized_features()


async def test_finalizing_a_level_again_changes_nothing(
    store: MemoryStore, view: ClusterView, updates: FeatureUpdates
) -> None:
    await updates.update([TO_2], timeout_ms=TIMEOUT_MS)
    before = (await store.range("")).revision
    for update in (TO_2, to(2, SAFE), to(2, UNSAFE)):
        await updates.update([update], timeout_ms=TIMEOUT_MS)
    assert (await store.range("")).revision == before
    assert view.finalized_features()[SEGMENT_FORMAT].revision == before


async def test_level_1_can_be_finalized_before_level_2(
    store: MemoryStore, view: ClusterView, updates: FeatureUpdates
) -> None:
    await updates.update([to(1)], timeout_ms=TIMEOUT_MS)
    assert await stored(store) == {keys.feature(SEGMENT_FORMAT): encode_level(1)}
    await updates.update([to(2)], timeout_ms=TIMEOUT_MS)
    assert view.feature_level(SEGMENT_FORMAT) == 2


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    ("update", "words"),
    [
        (
            to(3),
            "Invalid update version 3 for feature kafscale.segment.format. Broker 1 only supports versions 1-2.",
        ),
        (to(0), "Broker 1 only supports versions 1-2."),
        (to(-1), "A feature version cannot be less than 0."),
        (to(2, SAFE), "Can't downgrade to a newer version."),
        (to(2, UNSAFE), "Can't downgrade to a newer version."),
        (to(2, 0), "The controller does not support the given upgrade type."),
        (to(2, 9), "The controller does not support the given upgrade type."),
        (to(1, feature="metadata.version"), "Broker 1 does not support this feature."),
    ],
)
async def test_what_is_refused_while_nothing_is_finalized(
    store: MemoryStore, updates: FeatureUpdates, update: FeatureUpdate, words: str, validate_only: bool
) -> None:
    assert words in await refused(updates, update, validate_only=validate_only)
    assert await stored(store) == {}


@pytest.mark.parametrize("upgrade_type", UpgradeType)
@pytest.mark.parametrize("level", [0, 1])
async def test_a_finalized_level_is_never_taken_back(
    store: MemoryStore, updates: FeatureUpdates, level: int, upgrade_type: UpgradeType
) -> None:
    await updates.update([TO_2], timeout_ms=TIMEOUT_MS)
    message = await refused(updates, to(level, upgrade_type))
    assert f"Invalid update version {level} for feature {SEGMENT_FORMAT}. Level 2 is finalized" in message
    assert "never taken back" in message
    assert await stored(store) == {keys.feature(SEGMENT_FORMAT): encode_level(2)}


async def test_one_that_is_refused_refuses_all(store: MemoryStore, updates: FeatureUpdates) -> None:
    for wanted in ([TO_2, to(1, feature="unknown")], [to(1, feature="unknown"), TO_2]):
        assert "version 1 for feature unknown" in await refused(updates, *wanted)
    assert await stored(store) == {}


async def test_the_last_word_on_a_feature_counts(view: ClusterView, updates: FeatureUpdates) -> None:
    await updates.update([to(9), TO_2], timeout_ms=TIMEOUT_MS)
    assert view.feature_level(SEGMENT_FORMAT) == 2


async def test_validating_writes_nothing(store: MemoryStore, updates: FeatureUpdates) -> None:
    await updates.update([TO_2], timeout_ms=TIMEOUT_MS, validate_only=True)
    assert await stored(store) == {}


async def test_no_update_at_all_succeeds(updates: FeatureUpdates) -> None:
    await updates.update([], timeout_ms=TIMEOUT_MS)


@pytest.mark.parametrize("state", BrokerState)
@pytest.mark.parametrize(
    ("features", "words"),
    [
        (None, "Broker 7 only supports version 1."),
        ({SEGMENT_FORMAT: FeatureRange(1, 1)}, "Broker 7 only supports version 1."),
        ({SEGMENT_FORMAT: FeatureRange(3, 4)}, "Broker 7 only supports versions 3-4."),
        ({"another": FeatureRange(1, 2)}, "Broker 7 does not support this feature."),
    ],
)
async def test_a_level_waits_for_every_live_broker(
    store: MemoryStore,
    view: ClusterView,
    updates: FeatureUpdates,
    features: dict[str, FeatureRange] | None,
    words: str,
    state: BrokerState,
) -> None:
    await live(store, 7, features, state=state)
    assert words in await refused(updates, TO_2)
    assert await stored(store) == {}
    await store.transact([], [Delete(keys.broker(7))])
    await updates.update([TO_2], timeout_ms=TIMEOUT_MS)
    assert view.feature_level(SEGMENT_FORMAT) == 2


@pytest.mark.parametrize("fault", ERRORS)
@pytest.mark.parametrize("call", [1, 2, 3])
async def test_unknown_outcome_is_read_back_and_finalized_once(
    store: MemoryStore, view: ClusterView, call: int, fault: Fault
) -> None:
    fuse = Fuse(call, fault)
    before = (await store.range("")).revision
    updates = FeatureUpdates(FusedMetadataStore(store, fuse), view, retry_delay_sec=0.001)
    await updates.update([TO_2], timeout_ms=TIMEOUT_MS)
    assert fuse.blown.is_set()
    assert view.feature_level(SEGMENT_FORMAT) == 2
    assert (await store.range("")).revision == before + 1


async def test_two_brokers_that_finalize_at_once_both_succeed(
    store: MemoryStore, view: ClusterView, updates: FeatureUpdates
) -> None:
    other = FeatureUpdates(store, view, retry_delay_sec=0.001)
    before = (await store.range("")).revision
    await asyncio.gather(*(one.update([TO_2], timeout_ms=TIMEOUT_MS) for one in (updates, other)))
    assert (await store.range("")).revision == before + 1


class Interrupted(FusedMetadataStore):
    """Somebody else writes after this one has read and before it writes."""

    def __init__(self, inner: MetadataStore, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner, Fuse(0, Fault.UNAVAILABLE))
        self._meanwhile: Callable[[], Awaitable[object]] | None = meanwhile

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return await super().transact(compares, operations)


async def test_level_finalized_by_another_is_not_overwritten(
    store: MemoryStore, view: ClusterView, updates: FeatureUpdates
) -> None:
    racing = Interrupted(store, lambda: updates.update([TO_2], timeout_ms=TIMEOUT_MS))
    late = FeatureUpdates(racing, view, retry_delay_sec=0.001)
    assert "Level 2 is finalized" in await refused(late, to(1))
    assert await stored(store) == {keys.feature(SEGMENT_FORMAT): encode_level(2)}


def test_a_store_that_stays_away_is_a_timeout() -> None:
    async def scenario() -> None:
        updates = FeatureUpdates(FusedMetadataStore(MemoryStore(), Away()), ClusterView("cluster"))
        with pytest.raises(KafkaError, match="not done after 3000 ms; it may still be done") as refusal:
            await updates.update([TO_2], timeout_ms=3000)
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert 3 <= asyncio.get_running_loop().time() < 4

    run_virtually(scenario())


@pytest.mark.parametrize("held", [None, 1, 2])
async def test_a_rebuild_raises_a_level_and_never_lowers_it(held: int | None) -> None:
    store = MemoryStore()
    if held is not None:
        await store.transact([], [Put(keys.feature(SEGMENT_FORMAT), encode_level(held))])
    for level, wanted in ((1, max(1, held or 0)), (2, 2), (1, 2)):
        await raise_level(store, SEGMENT_FORMAT, level)
        assert await stored(store) == {keys.feature(SEGMENT_FORMAT): encode_level(wanted)}

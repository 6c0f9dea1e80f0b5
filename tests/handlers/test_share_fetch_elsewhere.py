"""Share groups at brokers that do not lead a partition, or cannot read what is stored: the answers of Kafka 4.2."""

import pytest

from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.sharing.pending_share_fetch import as_fetch_error
from kafscale.share.state.operations import Change, alter
from tests.groups.controlled_metadata import Metadata
from tests.handlers.test_fetch_elsewhere import TOPIC, Pair, pair
from tests.handlers.test_share_configs import setting
from tests.share.state.partitions import apply
from tests.support.on_uvloop import on_uvloop
from tests.support.share_member import ACCEPT, Answer, ShareMember

NOT_LEADER, UNKNOWN = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def sharing(both: Pair) -> ShareMember:
    """A member at the broker that does not lead."""
    record = both.leader.process.serving.view.topic(TOPIC)
    assert record is not None
    place = SharePartitionId("g", record.topic_id, both.index)
    await apply(both.leader.metadata, alter({place: 0}, {}, Change(0)).operations)
    return ShareMember(both.consumer, record.topic_id)


@on_uvloop
async def test_a_fetch_elsewhere_names_the_leader() -> None:
    async with pair() as both:
        await both.produce(b"a", b"b")
        member = await sharing(both)
        for asked in ([both.index], []):
            assert await member.fetch(asked) == {both.index: Answer([], [], NOT_LEADER)}
            (part,) = member.answer.responses[0].partitions
            leader = both.reader.process.serving.view.leader(TOPIC, both.index)
            assert leader is not None
            assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (
                1,
                leader.leader_epoch,
            )
            (node,) = member.answer.node_endpoints
            assert (node.node_id, node.rack) == (1, "a")
            assert node.port == both.leader.port
        elsewhere = ShareMember(both.producer, member.topic_id, member="b")
        assert await elsewhere.fetch([both.index]) == {both.index: Answer([(0, 1, 1)], [0])}
        assert list(elsewhere.answer.node_endpoints) == []


@on_uvloop
async def test_acknowledgements_elsewhere_are_of_no_partition() -> None:
    async with pair() as both:
        await both.produce(b"a", b"b")
        member = await sharing(both)
        await member.fetch([both.index])
        assert await member.say((0, 0, ACCEPT), index=both.index) == {both.index: UNKNOWN}
        (part,) = member.answer.responses[0].partitions
        assert part.error_message == "This server does not host this topic-partition."
        assert part.current_leader.leader_id == -1
        assert list(member.answer.node_endpoints) == []
        said = await member.fetch(say={both.index: [(0, 0, ACCEPT)]})
        assert said == {both.index: Answer([], [], NOT_LEADER, UNKNOWN)}
        assert [one.node_id for one in member.answer.node_endpoints] == [1]


async def test_members_try_again_while_the_metadata_store_is_away() -> None:
    store = Metadata()
    async with setting(metadata=store) as at:
        await at.produce(2)
        member = await at.member()
        store.is_away = True
        assert await member.fetch([0]) == {0: Answer([], [], ErrorCode.KAFKA_STORAGE_ERROR)}
        store.is_away = False
        assert await member.acquired() == [(0, 1, 1)]
        assert (await store.get(keys.topic("topic"))) is not None


@pytest.mark.parametrize(
    ("code", "answered"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_partitions_have_errors_that_share_consumers_know(code: ErrorCode, answered: ErrorCode) -> None:
    problem = as_fetch_error(KafkaError(code, "why"))
    assert (problem.code, problem.message) == (answered, "why")

"""ShareFetch and ShareAcknowledge on the wire, with the answers of Apache Kafka 4.2."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from kafscale.metadata.keys import SharePartitionId
from kafscale.protocol.error_codes import ErrorCode
from kafscale.share.state.operations import Change, alter
from tests.share.state.partitions import apply
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.share_member import ACCEPT, REJECT, RELEASE, RENEW, Answer, ShareMember

NOT_FOUND, WRONG_EPOCH = ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH
INVALID, WRONG_STATE = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD_STATE
LONG_MS = 60_000


@dataclass
class Setting:
    """A broker with a topic that group `g` shares from its first record on."""

    broker: InProcessBroker
    clients: list[Client]
    topic: str = "topic"
    topic_id: uuid.UUID = field(default_factory=uuid.uuid4)

    async def produce(self, *counts: int, partition: int = 0) -> None:
        """A batch of so many records for each number."""
        for count in counts:
            values = [b"value-%d" % number for number in range(count)]
            part = await self.clients[0].produce(self.topic, partition, wire.batch(values))
            assert part.error_code == 0

    def member(self, name: str = "a", client: int = 1, **how: object) -> ShareMember:
        return ShareMember(self.clients[client], self.topic_id, member=name, **how)  # type: ignore[arg-type]

    async def share(self, group: str = "g", partitions: int = 1, offset: int = 0) -> None:
        places = {SharePartitionId(group, self.topic_id, index): offset for index in range(partitions)}
        await apply(self.broker.metadata, alter(places, {}, Change(0)).operations)


@pytest.fixture
async def at() -> AsyncIterator[Setting]:
    async with (
        in_process_broker() as broker,
        broker.connect() as producer,
        broker.connect() as one,
        broker.connect() as two,
    ):
        await broker.create_topic(partitions=2)
        record = broker.process.serving.view.topic("topic")
        assert record is not None
        setting = Setting(broker, [producer, one, two], topic_id=record.topic_id)
        await setting.share(partitions=2)
        yield setting


async def test_a_member_acquires_says_and_acquires_again(at: Setting) -> None:
    await at.produce(10)
    member = at.member()
    assert await member.fetch([0]) == {0: Answer([(0, 9, 1)], [0])}
    assert member.answer.acquisition_lock_timeout_ms == 30_000
    assert await member.fetch() == {}
    said = {0: [(0, 3, ACCEPT), (4, 5, RELEASE), (6, 6, REJECT)]}
    assert await member.fetch(say=said) == {0: Answer([(4, 5, 2)], [0])}
    assert await member.say((4, 5, ACCEPT)) == {0: 0}
    assert await member.say((7, 9, ACCEPT)) == {0: 0}
    await at.produce(3, 2, 1)
    assert await member.fetch() == {0: Answer([(10, 15, 1)], [10, 13, 15])}
    member.epoch = -1
    assert await member.fetch(say={0: [(10, 11, ACCEPT)]}) == {0: Answer([], [])}
    assert await member.fetch() == {}
    member.epoch = 0
    assert await member.fetch([0]) == {0: Answer([(12, 15, 2)], [10, 13, 15])}
    assert await member.say((12, 12, ACCEPT), epoch=-1) == {0: 0}
    member.epoch = 0
    assert await member.acquired([0]) == [(13, 15, 3)]


async def test_sessions_are_mandatory_and_in_turn(at: Setting) -> None:
    await at.produce(3)
    member = at.member()
    for epoch in (1, -1):
        member.epoch = epoch
        assert await member.fetch() == NOT_FOUND
        assert await member.say(epoch=epoch) == NOT_FOUND
    assert await member.say((0, 0, ACCEPT), epoch=0) == WRONG_EPOCH
    member.epoch = 0
    assert await member.fetch(say={0: [(0, 0, ACCEPT)]}) == INVALID
    assert await member.acquired([0]) == [(0, 2, 1)]
    for epoch, expected in ((2, WRONG_EPOCH), (1, {}), (1, WRONG_EPOCH), (2, {})):
        member.epoch = epoch
        assert await member.fetch() == expected
    assert await member.say(epoch=2) == WRONG_EPOCH
    assert await member.say(epoch=4) == WRONG_EPOCH
    assert await member.say(epoch=3) == {}
    other = at.member(client=2)  # the same member on another connection
    other.epoch = 4
    assert await other.fetch() == {}
    member.epoch = 0
    assert await member.fetch([0]) == {0: Answer([], [])}
    for name in ("", "x" * 37):
        assert await at.member(name).fetch([0]) == INVALID


async def test_two_members_have_different_records(at: Setting) -> None:
    await at.produce(4, 4, 4)
    a, b = at.member("a"), at.member("b", 2)
    assert await a.acquired([0], max_records=1) == [(0, 3, 1)]
    assert await b.acquired([0], max_records=1) == [(4, 7, 1)]
    assert await b.say((0, 3, ACCEPT)) == {0: WRONG_STATE}
    assert await b.say((2, 5, ACCEPT)) == {0: WRONG_STATE}
    assert await b.say((4, 7, ACCEPT)) == {0: 0}
    assert await b.acquired(max_records=1) == [(8, 11, 1)]
    assert await a.say((0, 3, RELEASE)) == {0: 0}
    assert await b.acquired(max_records=2) == [(0, 3, 2)]


async def test_what_is_wrong_with_acknowledgements(at: Setting) -> None:
    await at.produce(5, 5, 5, 5)
    a = at.member()
    assert await a.acquired([0]) == [(0, 19, 1)]
    rows: list[tuple[tuple[object, ...], int]] = [
        (((0, 0, ACCEPT),), 0),
        (((0, 0, ACCEPT),), 0),  # below the start offset
        (((1, 1, RELEASE),), 0),
        (((1, 1, ACCEPT),), WRONG_STATE),
        (((2, 2, REJECT),), 0),
        (((2, 2, REJECT),), WRONG_STATE),
        (((3, 3, 0),), 0),
        (((6, 4, ACCEPT),), INVALID),
        (((4, 4, 5),), INVALID),
        (((4, 4, -1),), INVALID),
        (((4, 4, ()),), INVALID),
        (((4, 6, (1, 2, 3)),), 0),
        (((7, 9, (1, 1)),), INVALID),
        (((7, 9, (0, 1, 0)),), 0),
        (((10, 12, ACCEPT), (11, 13, ACCEPT)), INVALID),
        (((12, 12, ACCEPT), (10, 10, ACCEPT)), INVALID),
        (((19, 20, ACCEPT),), INVALID),
        (((99, 99, ACCEPT),), INVALID),
        (((16, 16, ACCEPT), (99, 99, ACCEPT)), INVALID),
        (((16, 16, RELEASE),), 0),
        (((17, 17, RENEW),), INVALID),
    ]
    for sayings, expected in rows:
        assert await a.say(*sayings) == {0: expected}, sayings  # type: ignore[arg-type]
    assert await a.say((17, 17, RENEW), may_renew=True) == {0: 0}
    assert await a.say((17, 17, ACCEPT), may_renew=True) == {0: 0}
    assert await a.acquired() == [(1, 1, 2), (5, 5, 2), (16, 16, 2)]
    assert await a.fetch(say={0: [(2, 2, ACCEPT)]}) == {0: Answer([], [], 0, WRONG_STATE)}
    assert await a.fetch(say={0: [(1, 1, RENEW)]}, is_renew_ack=True) == INVALID


async def test_how_much_is_acquired(at: Setting) -> None:
    await at.produce(10, 10, 10)
    a = at.member()
    assert await a.acquired([0], max_records=12) == [(0, 19, 1)]
    assert await a.acquired(max_records=0) == []
    assert await a.acquired(max_records=1, share_acquire_mode=1) == [(20, 20, 1)]
    assert await a.acquired(max_records=5, share_acquire_mode=1) == [(21, 25, 1)]
    assert a.answer.responses[0].partitions[0].records
    assert await a.fetch(share_acquire_mode=2) == INVALID
    b = at.member("b", 2, group="h")
    await at.share("h")
    assert await b.acquired([0], batch_size=4) == [(0, 9, 1), (10, 19, 1), (20, 29, 1)]
    c = at.member("c", 2, group="i", version=1)
    await at.share("i")
    assert await c.acquired([0], max_bytes=1) == [(0, 9, 1)]


async def test_a_fetch_waits_for_records(at: Setting) -> None:
    a = at.member()
    await a.send_fetch([0], max_wait_ms=LONG_MS)
    partition = at.broker.partition(at.topic)
    await until(lambda: partition.has_listeners, "the fetch waits")
    await at.produce(2)
    assert await a.receive_fetch() == {0: Answer([(0, 1, 1)], [0])}
    b = at.member("b", 2)
    assert await b.fetch([0], max_wait_ms=20) == {0: Answer([], [])}
    await b.send_fetch(max_wait_ms=LONG_MS)
    assert await a.say((0, 0, RELEASE)) == {0: 0}
    assert await b.receive_fetch() == {0: Answer([(0, 0, 2)], [0])}
    await b.send_fetch(max_wait_ms=LONG_MS)
    a.client.close()
    assert await b.receive_fetch() == {0: Answer([(1, 1, 2)], [0])}


async def test_what_is_not_there(at: Setting) -> None:
    await at.produce(3)
    a = at.member()
    assert await a.fetch([7]) == {7: Answer([], [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    stranger = ShareMember(at.clients[2], uuid.uuid4(), member="s")
    assert await stranger.fetch([0]) == {0: Answer([], [], ErrorCode.UNKNOWN_TOPIC_ID)}
    other = at.member("o", 2, group="no such group")
    answer = await other.fetch([0])
    assert isinstance(answer, dict)
    assert answer[0].error != 0


async def test_several_partitions_take_turns(at: Setting) -> None:
    await at.produce(10, 10)
    await at.produce(10, 10, partition=1)
    a = at.member()
    seen: set[int] = set()
    answer = await a.fetch([0, 1], max_records=7)
    for _ in range(4):
        assert isinstance(answer, dict)
        seen.update(index for index, one in answer.items() if one.acquired)
        answer = await a.fetch(max_records=7)
    assert seen == {0, 1}


async def test_where_a_group_begins_is_kept(at: Setting) -> None:
    await at.produce(4)
    await at.share("late", offset=-1)
    a = at.member(group="late")
    assert await a.acquired([0]) == []  # "latest"
    await at.produce(2)
    assert await a.acquired() == [(4, 5, 1)]


async def test_many_members_share_a_partition(at: Setting) -> None:
    """Each record is given once, however many ask at the same time."""
    await at.produce(*[10] * 50)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_drain(at, number)) for number in range(20)]
    offsets = [offset for task in tasks for offset in task.result()]
    assert sorted(offsets) == list(range(500))


async def _drain(at: Setting, number: int) -> list[int]:
    taken: list[int] = []
    async with at.broker.connect() as client:
        member = ShareMember(client, at.topic_id, member=f"m{number}")
        await member.fetch([0], max_records=0)
        while acquired := await member.acquired(max_records=20, max_wait_ms=50):
            for first, last, count in acquired:
                assert count == 1
                taken.extend(range(first, last + 1))
                assert await member.say((first, last, ACCEPT)) == {0: 0}
        return taken

"""A broker in the test's process, with topics and groups, and its page without HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafscale.formats.committed_offset import CommittedOffset
from kafscale.groups.events import NO_MEMBER_ID, Protocol
from kafscale.ops.admin_requests import AdminAnswer, AdminRequest
from kafscale.pages.site import Site
from kafscale.protocol.error_codes import ErrorCode
from kafscale.settings.broker import Settings
from tests.pages.html import Document, parsed
from tests.support.in_process_broker import InProcessBroker, in_process_broker
from tests.support.wire import batch

PLACES = ("memory <records>", "memory & metadata")


class Clock:
    """Moves only when the page waits, or the test says so."""

    def __init__(self) -> None:
        self.now_sec = 1000.0

    def read(self) -> float:
        return self.now_sec

    def sleep(self, seconds: float) -> None:
        self.now_sec += seconds


@dataclass
class ShownBroker:
    """The broker and its page."""

    broker: InProcessBroker
    site: Site
    clock: Clock

    async def answer(self, target: str, **request: str) -> AdminAnswer:
        """The answer to a request for a path with its query."""
        path, _, query = target.partition("?")
        answer = await asyncio.to_thread(self.site.answer, AdminRequest(path=path, query=query, **request))
        assert answer is not None, target
        return answer

    async def page(self, target: str) -> Document:
        """The page, which must be there."""
        answer = await self.answer(target)
        assert answer.status == 200, answer
        return parsed(answer.body)

    async def produce(self, topic: str, partition: int, records: int) -> None:
        """Store records of some bytes."""
        async with self.broker.connect() as client:
            part = await client.produce(topic, partition, batch([b"value"] * records))
            assert part.error_code == 0, part

    async def commit(self, group_id: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets without a member, as a consumer that assigns partitions itself."""
        view = self.broker.process.serving.view
        committed = {}
        for (topic, index), offset in offsets.items():
            record = view.topic(topic)
            assert record is not None
            committed[topic, index] = CommittedOffset(
                topic_id=record.topic_id, offset=offset, commit_timestamp_ms=1
            )
        code = await self.broker.process.serving.groups.coordinator.commit(
            group_id, member_id=NO_MEMBER_ID, group_instance_id=None, generation=-1, offsets=committed
        )
        assert code is ErrorCode.NONE

    async def join(self, group_id: str, client_id: str, assigned: Mapping[str, Sequence[int]]) -> None:
        """Let a member join a group that has none, with everything assigned to it."""
        coordinator = self.broker.process.serving.groups.coordinator
        joined = await coordinator.classic.join(
            group_id,
            member_id=NO_MEMBER_ID,
            group_instance_id=None,
            client_id=client_id,
            client_host="/<b>host</b>",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=(Protocol("range", b"\x00\x00\x00\x00\x00\x00"),),
            member_id_required=False,
        )
        synced = await coordinator.classic.sync(
            group_id,
            member_id=joined.member_id,
            group_instance_id=None,
            generation=joined.generation,
            protocol_type="consumer",
            protocol_name="range",
            assignments={joined.member_id: assignment(assigned)},
        )
        assert synced.error_code is ErrorCode.NONE


def assignment(assigned: Mapping[str, Sequence[int]]) -> bytes:
    """A consumer's assignment as clients encode it."""
    topics = [
        len(topic.encode()).to_bytes(2, "big")
        + topic.encode()
        + len(indexes).to_bytes(4, "big")
        + b"".join(index.to_bytes(4, "big") for index in indexes)
        for topic, indexes in assigned.items()
    ]
    return b"\x00\x01" + len(topics).to_bytes(4, "big") + b"".join(topics) + b"\xff\xff\xff\xff"


@contextlib.asynccontextmanager
async def shown_broker(**settings: Any) -> AsyncIterator[ShownBroker]:
    """A ready broker with its page open."""
    async with in_process_broker(group_initial_rebalance_delay_ms=0, **settings) as broker:
        clock = Clock()
        site = Site(
            Settings(),
            broker.metrics,
            broker.process.basics.health,
            asyncio.get_running_loop(),
            token=None,
            places=PLACES,
            now_sec=clock.read,
            sleep=clock.sleep,
            deadline_sec=60,
        )
        site.open(broker.process.shown)
        yield ShownBroker(broker, site, clock)

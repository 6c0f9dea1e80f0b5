"""A member of a share group on a raw connection: what it fetches and says, and short forms of the answers."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafscale.protocol.api_messages import ShareAcknowledgeRequest, ShareFetchRequest
from kafscale.protocol.share_group_messages import ShareAcknowledgeResponse, ShareFetchResponse
from tests.support.in_process_broker import Client

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4

Saying = tuple[int, int, int] | tuple[int, int, Sequence[int]]
"""First and last offset, and the type of acknowledgement, or one for each."""


class Answer(NamedTuple):
    """Of a partition: acquired ranges with their delivery counts; the batches sent; both error codes."""

    acquired: list[tuple[int, int, int]]
    batches: list[int]
    error: int = 0
    acknowledge_error: int = 0


@dataclass
class ShareMember:
    """`epoch`: of the next request. `answer`: the whole last answer."""

    client: Client
    topic_id: uuid.UUID
    group: str = "g"
    member: str = "a"
    epoch: int = 0
    version: int = 2
    answer: Any = None
    limits: dict[str, int] = field(default_factory=dict)

    def request(
        self, add: Iterable[int] = (), say: Mapping[int, Sequence[Saying]] | None = None, **limits: Any
    ) -> ShareFetchRequest:
        said = dict(say or {})
        topic = ShareFetchRequest.FetchTopic
        values: dict[str, Any] = {
            "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500,
            "share_acquire_mode": 0, "is_renew_ack": False, "forgotten_topics_data": [],
            **self.limits, **limits,
        }  # fmt: skip
        partitions = [
            topic.FetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    topic.FetchPartition.AcknowledgementBatch(
                        first_offset=one[0], last_offset=one[1], acknowledge_types=_types(one)
                    )
                    for one in said.get(index, ())
                ],
            )
            for index in dict.fromkeys((*add, *said))
        ]
        return ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch,
            topics=[topic(topic_id=self.topic_id, partitions=partitions)] if partitions else [],
            **values,
        )

    async def send_fetch(self, *arguments: Any, **named: Any) -> None:
        await self.client.send(self.request(*arguments, **named), self.version)

    async def receive_fetch(self) -> dict[int, Answer] | int:
        """By partition; or the error of the whole request."""
        self.answer = answer = await self.client.receive(ShareFetchResponse, self.version)
        if answer.error_code:
            return int(answer.error_code)
        self._next_epoch()
        return {
            one.partition_index: Answer(
                [(part.first_offset, part.last_offset, part.delivery_count) for part in one.acquired_records],
                _batches(bytes(one.records or b"")),
                one.error_code,
                one.acknowledge_error_code,
            )
            for topic in answer.responses
            for one in topic.partitions
        }

    async def fetch(self, *arguments: Any, **named: Any) -> dict[int, Answer] | int:
        await self.send_fetch(*arguments, **named)
        return await self.receive_fetch()

    async def acquired(self, *arguments: Any, **named: Any) -> list[tuple[int, int, int]]:
        """The ranges of partition 0 that the member has acquired."""
        answers = await self.fetch(*arguments, **named)
        assert isinstance(answers, dict), answers
        return answers[0].acquired if 0 in answers else []

    async def say(
        self, *sayings: Saying, index: int = 0, epoch: int | None = None, may_renew: bool = False
    ) -> int | dict[int, int]:
        """ShareAcknowledge: the error of each partition, or that of the request."""
        topic = ShareAcknowledgeRequest.AcknowledgeTopic
        partition = topic.AcknowledgePartition(
            partition_index=index,
            acknowledgement_batches=[
                topic.AcknowledgePartition.AcknowledgementBatch(
                    first_offset=one[0], last_offset=one[1], acknowledge_types=_types(one)
                )
                for one in sayings
            ],
        )
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=may_renew,
            topics=[topic(topic_id=self.topic_id, partitions=[partition])] if sayings else [],
        )
        self.answer = answer = await self.client.call(request, ShareAcknowledgeResponse, self.version)
        if answer.error_code:
            return int(answer.error_code)
        if epoch is None or epoch > 0:
            self._next_epoch()
        return {one.partition_index: one.error_code for each in answer.responses for one in each.partitions}

    def _next_epoch(self) -> None:
        self.epoch = self.epoch + 1 if self.epoch >= 0 else 0


def _types(one: Saying) -> list[int]:
    return [one[2]] if isinstance(one[2], int) else list(one[2])


def _batches(data: bytes) -> list[int]:
    """Their base offsets."""
    found = []
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        assert size <= len(data), "a batch is cut"
        found.append(int.from_bytes(data[:8], "big"))
        data = data[size:]
    return found

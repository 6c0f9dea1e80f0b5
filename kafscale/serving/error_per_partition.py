"""Requests that name partitions by topic, and answers that say of each no more than how it went."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from kafscale.protocol.error_codes import ErrorCode
from kafscale.tasks.in_turns import in_turns

T = TypeVar("T")
PartitionAnswer = TypeVar("PartitionAnswer")
TopicAnswer = TypeVar("TopicAnswer")


class NamedPartition(Protocol):
    """A partition of a request."""

    @property
    def partition_index(self) -> int:
        """Its number."""


Named = TypeVar("Named", bound=NamedPartition)
Named_co = TypeVar("Named_co", bound=NamedPartition, covariant=True)


class NamedTopic(Protocol[Named_co]):
    """A topic of a request."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def partitions(self) -> Sequence[Named_co]:
        """Those that the request names, each as often as it does."""


def partitions_of(
    topics: Sequence[NamedTopic[Named]], beside: Sequence[T]
) -> Iterator[tuple[NamedTopic[Named], T, Named]]:
    """Each partition that the request names: its topic, the topic's item of `beside`, and itself."""
    for topic, one in zip(topics, beside, strict=True):
        for partition in topic.partitions:
            yield topic, one, partition


async def answer_each(
    topics: Sequence[NamedTopic[NamedPartition]],
    codes: Iterable[ErrorCode],
    partition_answer: Callable[[int, ErrorCode], PartitionAnswer],
    topic_answer: Callable[[str, list[PartitionAnswer]], TopicAnswer],
) -> list[TopicAnswer]:
    """The answers by topic: `partition_answer` is given each partition of the request and its code."""
    answers: list[list[PartitionAnswer]] = [[] for _ in topics]
    asked = zip(partitions_of(topics, answers), codes, strict=True)
    async for (_, answer, partition), code in in_turns(asked):
        answer.append(partition_answer(partition.partition_index, code))
    return [topic_answer(topic.name, answer) for topic, answer in zip(topics, answers, strict=True)]

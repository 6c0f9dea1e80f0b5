"""Requests that name partitions by topic, and answers with an error code for each."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from kafscale.protocol.error_codes import ErrorCode
from kafscale.tasks.in_turns import in_turns

T = TypeVar("T")


def partitions_of(topics: Sequence[Any], beside: Sequence[T]) -> Iterator[tuple[Any, T, Any]]:
    """Each partition of the request: its topic, that topic's item of `beside`, and itself."""
    for topic, one in zip(topics, beside, strict=True):
        for partition in topic.partitions:
            yield topic, one, partition


async def answer_each(
    topics: Sequence[Any], codes: Iterable[ErrorCode], topic_class: Any, partition_class: Any
) -> list[Any]:
    """The request's topics and partitions in the answer's classes, each partition with its code."""
    answers = [topic_class(name=topic.name, partitions=[]) for topic in topics]
    asked = zip(partitions_of(topics, answers), codes, strict=True)
    async for (_, answer, partition), code in in_turns(asked):
        answer.partitions.append(partition_class(partition_index=partition.partition_index, error_code=code))
    return answers

"""The partitions of a request, each once: a request may name one of them a hundred thousand times."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from kafscale.tasks.concurrently import for_each
from kafscale.tasks.in_turns import in_turns

R = TypeVar("R")


class NamedOnce(NamedTuple):
    """The entries of a request by topic and partition, in the order in which they are first named.

    Of a repeated partition the last entry counts, as in Kafka, whose requests become maps. `again`: those
    partitions.
    """

    topics: Mapping[str, Mapping[int, Any]]
    again: frozenset[tuple[str, int]]

    async def answer_each(
        self, answer: Callable[[str, Any], Awaitable[R]], topic_answer: Callable[[str, list[R]], Any]
    ) -> list[Any]:
        """The answers by topic: `answer` takes a topic and one of its partitions' entries."""
        pairs = [(topic, asked) for topic, partitions in self.topics.items() for asked in partitions.values()]
        answers = iter(await for_each(pairs, lambda pair: answer(*pair)))
        return [
            topic_answer(topic, [next(answers) for _ in partitions])
            for topic, partitions in self.topics.items()
        ]


async def named_once(topics: Sequence[Any], topic_name: str, partition_index: str) -> NamedOnce:
    """Collect a request's topics; `topic_name` and `partition_index` name the message's fields."""
    name_of, index_of = attrgetter(topic_name), attrgetter(partition_index)
    once: dict[str, dict[int, Any]] = {name_of(topic): {} for topic in topics}
    again: set[tuple[str, int]] = set()
    named: Iterable[tuple[str, Any]] = (
        (name_of(topic), asked) for topic in topics for asked in topic.partitions
    )
    async for name, asked in in_turns(named):
        index = index_of(asked)
        if index in once[name]:
            again.add((name, index))
        once[name][index] = asked
    return NamedOnce(once, frozenset(again))

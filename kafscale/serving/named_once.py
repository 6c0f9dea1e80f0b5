"""The partitions that a request names, each once: a request may name one of them a hundred thousand times."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from kafscale.tasks.concurrently import for_each
from kafscale.tasks.in_turns import in_turns

P = TypeVar("P")
R = TypeVar("R")
TopicAnswer = TypeVar("TopicAnswer")


class NamedOnce(NamedTuple, Generic[P]):
    """The request for each partition, by topic and partition, in the order in which they are first named.

    For a partition that is named again the last one counts, as in Kafka, whose requests become maps. `again`:
    those partitions.
    """

    topics: Mapping[str, Mapping[int, P]]
    again: frozenset[tuple[str, int]]

    async def answer_each(
        self,
        answer: Callable[[str, P], Awaitable[R]],
        topic_answer: Callable[[str, list[R]], TopicAnswer],
    ) -> list[TopicAnswer]:
        """The answers by topic: `answer` is given a topic and what is asked of a partition of it."""
        pairs = [(topic, asked) for topic, partitions in self.topics.items() for asked in partitions.values()]
        answers = iter(await for_each(pairs, lambda pair: answer(*pair)))
        return [
            topic_answer(topic, [next(answers) for _ in partitions])
            for topic, partitions in self.topics.items()
        ]


async def named_once(topics: Iterable[tuple[str, Sequence[P]]], index_of: Callable[[P], int]) -> NamedOnce[P]:
    """Look at a request's topics, each with what is asked of its partitions."""
    named = tuple(topics)
    once: dict[str, dict[int, P]] = {name: {} for name, _ in named}
    again: set[tuple[str, int]] = set()
    async for name, asked in in_turns((name, asked) for name, partitions in named for asked in partitions):
        index = index_of(asked)
        if index in once[name]:
            again.add((name, index))
        once[name][index] = asked
    return NamedOnce(once, frozenset(again))

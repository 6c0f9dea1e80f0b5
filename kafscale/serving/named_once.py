"""The partitions that a request names, each once: a request may name one of them a hundred thousand times."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from kafscale.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, decode_fetch_request
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


def decode_asked_once(body: memoryview, version: int) -> FetchRequest:
    """Decode a Fetch request's body, without repeated partitions.

    As in Kafka, whose request becomes a map, a repeated partition has the place of its first entry and the values
    of its last. Raises `MalformedRequestError` as `decode_fetch_request` does.
    """
    fetch = decode_fetch_request(body, version)
    return fetch if _names_each_once(fetch) else fetch._replace(topics=_merged(fetch.topics))


def _names_each_once(fetch: FetchRequest) -> bool:
    topics = fetch.topics
    if len(topics) > 1 and len({topic[:2] for topic in topics}) < len(topics):
        return False
    for topic in topics:
        partitions = topic.partitions
        if len(partitions) > 1 and len({wanted.partition for wanted in partitions}) < len(partitions):
            return False
    return True


def _merged(topics: list[FetchTopic]) -> list[FetchTopic]:
    merged: dict[tuple[str | None, bytes | None], dict[int, FetchPartition]] = {}
    for topic in topics:
        merged.setdefault((topic.name, topic.topic_id), {}).update(
            (wanted.partition, wanted) for wanted in topic.partitions
        )
    return [FetchTopic(*key, list(partitions.values())) for key, partitions in merged.items()]

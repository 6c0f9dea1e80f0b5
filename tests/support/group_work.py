"""Work for consumer groups: a producer that runs meanwhile, committed offsets, and checks that all was handled."""

import threading
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Self

from confluent_kafka import Producer
from kafka.protocol.consumer import OffsetFetchRequest, OffsetFetchResponse
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from tests.support import librdkafka, wire
from tests.support.group_members import Handled, Partition, Partitions
from tests.support.waiting import PATIENCE_SEC, wait_until

FIND_COORDINATOR_VERSION = 3
OFFSET_FETCH_VERSION = 7
NO_COORDINATOR_YET = (14, 15, 16)  # loading, not available, not this one
PAUSE_SECONDS = 0.01


def partitions_of(topic: str, count: int) -> list[Partition]:
    """(topic, 0), (topic, 1), ..."""
    return [(topic, partition) for partition in range(count)]


def send_to_all(broker: Any, topic: str, partitions: int, count: int) -> None:
    """`count` records to each partition."""
    client = librdkafka.producer(broker)
    for partition in range(partitions):
        for number in range(count):
            client.produce(topic, b"%d" % number, partition=partition)
    assert client.flush(PATIENCE_SEC) == 0


class RunningProducer:
    """Sends a record to each partition again and again until the block ends. `counts`: its records per partition."""

    def __init__(self, broker: Any, topic: str, partitions: int) -> None:
        self._topic = topic
        self._client: Producer = librdkafka.producer(broker, linger_ms=0)
        self._failures: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.counts = [0] * partitions

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop sending; all sent records are stored."""
        self._ended.set()
        self._thread.join()
        assert self._client.flush(PATIENCE_SEC) == 0
        assert not self._failures, self._failures[:3]

    def wait_for_more(self, count: int = 10) -> None:
        """Wait until it has sent that many more to each partition."""
        wanted = [sent + count for sent in self.counts]
        wait_until(
            lambda: all(sent >= want for sent, want in zip(self.counts, wanted, strict=True)), "records"
        )

    def _run(self) -> None:
        def report(error: object, _: object) -> None:
            if error is not None:
                self._failures.append(str(error))

        while not self._ended.wait(PAUSE_SECONDS):
            for partition in range(len(self.counts)):
                self._client.produce(self._topic, b"x", partition=partition, on_delivery=report)
                self.counts[partition] += 1
            self._client.poll(0)


def committed_offsets(
    broker: Any, group: str, partitions: Iterable[Partition] | None = None
) -> dict[Partition, int]:
    """The group's commits, by one raw request; -1 if there is none. None: all that exist."""
    topics = None
    if partitions is not None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic.items()
        ]
    request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=False)
    with wire.connect(broker) as connection:
        reply = wait_until(partial(_answer_of_coordinator, connection, request), f"{group}'s offsets")
    assert reply is not None
    return {
        (topic.name, one.partition_index): one.committed_offset
        for topic in reply.topics
        for one in topic.partitions
    }


def _answer_of_coordinator(connection: wire.Wire, request: OffsetFetchRequest) -> Any:
    """The answer, or None while the broker is becoming the coordinator; looking for one makes it one."""
    looked = FindCoordinatorRequest(key=request.group_id, key_type=0)
    connection.call(looked, FindCoordinatorResponse, FIND_COORDINATOR_VERSION)
    reply = connection.call(request, OffsetFetchResponse, OFFSET_FETCH_VERSION)
    if reply.error_code in NO_COORDINATOR_YET:
        return None
    assert reply.error_code == 0, f"OffsetFetch: error {reply.error_code}"
    return reply


def wait_for_shares(
    members: Sequence[Any],
    partitions: Iterable[Partition],
    *,
    fewest: int = 1,
    timeout_s: float = PATIENCE_SEC,
) -> list[Partitions]:
    """Wait until each partition has exactly one owner and each member `fewest` at least; returns the shares."""
    wanted = sorted(partitions)

    def shared() -> list[Partitions] | None:
        owned = [member.assignment for member in members]
        for member in members:
            if member.failure is not None:
                raise AssertionError(f"{member} has failed") from member.failure
        fair = all(len(one) >= fewest for one in owned)
        return owned if fair and sorted(one for share in owned for one in share) == wanted else None

    try:
        return wait_until(shared, "every partition has one owner", timeout_s) or []
    except AssertionError as error:
        error.add_note(f"the members: {list(members)}")
        raise


class CommitWatch:
    """Checks a group's commits now and then; none may go backwards."""

    def __init__(self, broker: Any, group: str) -> None:
        self._broker = broker
        self._group = group
        self.offsets: dict[Partition, int] = {}

    def look(self) -> dict[Partition, int]:
        """The committed offsets now."""
        now = committed_offsets(self._broker, self._group)
        for partition, before in self.offsets.items():
            after = now.get(partition, -1)
            assert after >= before, f"{partition}: committed {before}, and then {after}"
        self.offsets = now
        return now

    def wait_for(self, topic: str, counts: Sequence[int]) -> None:
        """Wait until all records are committed."""
        wanted = {(topic, partition): count for partition, count in enumerate(counts)}
        wait_until(lambda: self.look() == wanted, f"{wanted} is committed")

    def wait_for_shares(self, members: Sequence[Any], partitions: Iterable[Partition]) -> list[Partitions]:
        """`wait_for_shares`, with a check before and after."""
        self.look()
        shares = wait_for_shares(members, partitions)
        self.look()
        return shares


def wait_until_handled(members: Sequence[Any], topic: str, counts: Sequence[int]) -> None:
    """Wait until the last record of each partition was handled by some member."""

    def done() -> bool:
        for member in members:
            if member.failure is not None:
                raise AssertionError(f"{member} has failed") from member.failure
        handled = {(one.topic, one.partition, one.offset) for member in members for one in member.handled}
        return all((topic, partition, count - 1) in handled for partition, count in enumerate(counts))

    wait_until(done, f"{sum(counts)} records are handled")


def wait_until_all_work(members: Sequence[Any]) -> None:
    """Wait until each member has handled a record."""
    wait_until(lambda: all(member.handled for member in members), "every member works")


def assert_handled_once_in_order(members: Sequence[Any], topic: str, counts: Sequence[int]) -> None:
    """Every record of every partition by one member, one after the other, over all members together."""
    for partition, count in enumerate(counts):
        offsets = [one.offset for one in _in_time(members, topic, partition)]
        assert offsets == list(range(count)), f"partition {partition}: {_first_odd(offsets)}"


def assert_none_skipped(members: Sequence[Any], topic: str, counts: Sequence[int]) -> None:
    """Every record at least once, and none before the one in front of it was handled at least once.

    What a member had handled and not committed when it was killed, its successor handles again.
    """
    for partition, count in enumerate(counts):
        expected = 0
        for one in _in_time(members, topic, partition):
            assert one.offset <= expected, f"partition {partition}: {expected} was skipped"
            expected = max(expected, one.offset + 1)
        assert expected == count, f"partition {partition}: {expected} of {count} records"


def _in_time(members: Sequence[Any], topic: str, partition: int) -> list[Handled]:
    mine = [
        one
        for member in members
        for one in member.handled
        if (one.topic, one.partition) == (topic, partition)
    ]
    return sorted(mine, key=lambda one: one.at)


def _first_odd(offsets: Sequence[int]) -> str:
    odd = next((place for place, offset in enumerate(offsets) if place != offset), len(offsets))
    return f"{len(offsets)} records, and from the {odd}th on {list(offsets[odd : odd + 5])}"

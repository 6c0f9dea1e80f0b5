"""Consumers of compacted partitions: from every offset, the missing ones too, and while compaction goes on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.compat.compaction.readers import ONE_BATCH_FETCHES, READERS, WHOLE_FETCHES, Reads
from tests.compat.conftest import Peer
from tests.support.compacted_topics import CompactedTopic, check_read, compacted_topic, gappy_topic
from tests.support.nightly import by_day, nightly_but
from tests.support.topics import unique_name
from tests.support.waiting import wait_until
from tests.support.wire import connect, fetch, records_in

KEYS = 12
FETCHES = {"whole": WHOLE_FETCHES, "one-batch": ONE_BATCH_FETCHES}


@pytest.fixture(scope="module")
def gappy(compacting: Peer) -> CompactedTopic:
    """A compacted topic with gaps of all kinds."""
    return gappy_topic(compacting, unique_name("gappy"))


@pytest.mark.parametrize("fetches", FETCHES)
@pytest.mark.parametrize("client", READERS)
def test_consumer_may_begin_at_any_offset(
    gappy: CompactedTopic, compacting: Peer, client: str, fetches: str
) -> None:
    end_offset = gappy.end_offset
    begins = range(0, end_offset, by_day(2 if fetches == "whole" else 6, by_night=1))
    reads = Reads(
        bootstrap=compacting.bootstrap,
        topic=gappy.name,
        begins=begins,
        last_offset=end_offset - 1,
        fetch_bytes=FETCHES[fetches],
    )
    count = 0
    for begin, updates in READERS[client](reads):
        check_read(updates, gappy, begin, end_offset)
        count += 1
    assert count == len(begins)


def test_a_reply_may_have_an_empty_batch_alone(gappy: CompactedTopic, only_kafscale: None) -> None:
    """So that the test above has consumers that meet one; Kafka leaves a gap in most of these places."""
    alone = 0
    with connect(gappy.broker) as wire:
        for begin in range(gappy.end_offset):
            part = fetch(wire, gappy.name, {0: begin}, partition_max_bytes=1)[0]
            alone += bool(part.records) and not records_in(part.records)
    assert alone > gappy.end_offset // 10


@contextmanager
def updating(topic: CompactedTopic) -> Iterator[None]:
    """Updates of the same keys go on in the block."""
    over = threading.Event()
    problems: list[Exception] = []

    def update() -> None:
        try:
            with connect(topic.broker) as wire:
                while not over.wait(0.01):
                    number = topic.end_offset
                    topic.write_on(wire, [(b"key-%d" % (number % KEYS), b"%d" % number)])
        except Exception as problem:  # noqa: BLE001 - raised below
            problems.append(problem)

    thread = threading.Thread(target=update, name="updating")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert not problems, problems


@pytest.mark.parametrize("client", nightly_but(READERS, "librdkafka"))
def test_consumer_beside_compaction_has_the_newest_values(compacting: Peer, client: str) -> None:
    topic = compacted_topic(compacting, unique_name("busy"))
    with updating(topic):
        wait_until(lambda: topic.end_offset > KEYS, "every key has a value")
        removals, stored = 0, 0
        while removals < by_day(3, by_night=30):
            end_offset = topic.end_offset
            reads = Reads(
                bootstrap=compacting.bootstrap, topic=topic.name, begins=[0], last_offset=end_offset - 1
            )
            ((_, updates),) = READERS[client](reads)
            check_read(updates, topic, 0, end_offset)
            lacking = end_offset - len([one for one in updates if one.offset < end_offset])
            # More is gone than before: a compaction came to its end.
            removals += lacking > stored
            stored = max(stored, lacking)
    end_offset = topic.end_offset
    reads = Reads(bootstrap=compacting.bootstrap, topic=topic.name, begins=[0], last_offset=end_offset - 1)
    ((_, updates),) = READERS[client](reads)
    check_read(updates, topic, 0, end_offset)
    assert {one.key: one for one in updates} == topic.newest()

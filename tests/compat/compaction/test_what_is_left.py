"""The rest that a compaction leaves: the last record of each key, and tombstones for their time."""

from typing import Any

import pytest
from confluent_kafka import Producer

from tests.compat.compaction.readers import Reads, librdkafka_reads
from tests.compat.conftest import Peer
from tests.support.compacted_topics import Update, compacted_topic
from tests.support.nightly import nightly_but
from tests.support.topics import unique_name
from tests.support.waiting import PATIENCE_SEC
from tests.support.wire import CODECS

ROUNDS = 30


@pytest.mark.parametrize("codec", nightly_but(CODECS, "lz4"))
def test_last_record_of_each_key_is_left_at_its_offset(compacting: Peer, codec: str) -> None:
    """As librdkafka's own test of compaction: three keys, one of them with tombstones, beside keys of one record."""
    topic = compacted_topic(compacting, unique_name("keys"))
    producer = Producer(
        {
            "bootstrap.servers": compacting.bootstrap,
            "compression.codec": codec,
            "linger.ms": 2,
            "batch.num.messages": 7,
            "enable.idempotence": True,
        }
    )
    delivered: dict[int, Any] = {}

    def note(problem: Any, message: Any) -> None:
        assert problem is None, problem
        delivered[message.offset()] = message

    for number in range(ROUNDS):
        for key in ("k1", "k2", "k3", f"only-{number}"):
            is_tombstone = key == "k1" and (number == ROUNDS - 1 or number % 7 == 0)
            value = None if is_tombstone else f"{number} of {key}".encode()
            producer.produce(topic.name, value, key.encode(), partition=0, on_delivery=note)
        producer.poll(0)
    assert producer.flush(PATIENCE_SEC) == 0
    topic.history += [Update(at, one.key(), one.value()) for at, one in sorted(delivered.items())]
    assert [one.offset for one in topic.history] == list(range(4 * ROUNDS))
    written = topic.newest()
    topic.compact(len(written) + 8)
    reads = Reads(
        bootstrap=compacting.bootstrap, topic=topic.name, begins=[0], last_offset=topic.end_offset - 1
    )
    ((_, updates),) = librdkafka_reads(reads)
    below = [one for one in updates if one.offset < 4 * ROUNDS]
    assert below == sorted(written.values())
    assert written[b"k1"].value is None


def test_tombstone_goes_after_its_retention(compacting: Peer) -> None:
    topic = compacted_topic(compacting, unique_name("tombstones"), {"delete.retention.ms": "100"})
    topic.write([(b"gone", b"value"), (b"stays", b"value")])
    topic.write([(b"gone", None)])
    # The first compaction notes the time, one after it removes the tombstone.
    left = topic.compact_until(
        lambda found: all(one.key != b"gone" for one in found), "has nothing of a deleted key"
    )
    assert left[0] == topic.history[1]


def test_tombstone_stays_for_its_retention(compacting: Peer) -> None:
    topic = compacted_topic(compacting, unique_name("tombstones"))
    topic.write([(b"gone", b"value"), (b"stays", b"value")])
    topic.write([(b"gone", None)])
    left = topic.compact_until(lambda found: found[0].offset > 0, "has lost the deleted value")
    assert left[:2] == topic.history[1:3]
    # And by a second compaction.
    before = topic.end_offset
    left = topic.compact_until(lambda found: found[2].offset >= before, "was compacted again")
    assert left[:2] == topic.history[1:3]

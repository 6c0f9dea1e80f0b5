"""Compacted topics for tests of clients: what was written, the wait for a compaction, and what a reader must find."""

import functools
import itertools
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.support.topics import create_topic
from tests.support.waiting import wait_until
from tests.support.wire import (
    CODECS,
    KAFKA_STORAGE_ERROR,
    LATEST,
    Wire,
    batches_in,
    connect,
    fetch,
    init_producer_id,
    list_offset,
    produce,
)

DIRTY_AT_ONCE: Final[Mapping[str, object]] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    # Kafka compacts all but the newest segment, and begins one when a record is that much newer.
    "segment.ms": "100",
}
"""Configs of a topic that is compacted again and again."""
SOON_ON_KAFSCALE: Final[Mapping[str, Any]] = {
    "flush_interval_ms": 5,
    "seal_interval_ms": 100,
    "seal_max_age_ms": 1000,
    "merge_check_interval_ms": 250,
}
"""Settings of a Kafscale broker with which a compaction is seconds away."""
SOON_ON_KAFKA: Final[Mapping[str, Any]] = {
    "log_cleaner_backoff_ms": 100,
    # For topics whose creator says nothing of these.
    "log_segment_bytes": 1 << 20,
    "log_roll_ms": 500,
}
"""The same for Apache Kafka."""

_FILLER: Final = b"filler"
_FILLER_EVERY_SEC: Final = 0.3
_FETCH_BYTES: Final = 8 << 20


class Update(NamedTuple):
    """A record of a compacted topic; without a value it is a tombstone."""

    offset: int
    key: bytes
    value: bytes | None


@dataclass
class CompactedTopic:
    """One partition that only this object writes to: `history` has every record at its offset."""

    broker: Any
    name: str
    history: list[Update] = field(default_factory=list)
    _sequences: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def end_offset(self) -> int:
        return len(self.history)

    def write(
        self,
        records: Sequence[tuple[bytes, bytes | None]],
        *,
        codec: str = "none",
        producer: tuple[int, int] = (-1, -1),
    ) -> None:
        """One batch, which is acknowledged. `producer`: id and epoch of an idempotent one."""
        with connect(self.broker) as wire:
            self.write_on(wire, records, codec=codec, producer=producer)

    def write_on(
        self,
        wire: Wire,
        records: Sequence[tuple[bytes, bytes | None]],
        *,
        codec: str = "none",
        producer: tuple[int, int] = (-1, -1),
    ) -> None:
        """The same over a connection that is there."""
        sequence = self._sequences.get(producer, 0) if producer[0] >= 0 else -1
        part = produce(wire, self.name, 0, _batch(records, codec, producer, sequence))
        assert part.error_code == 0, f"produce: error {part.error_code}"
        assert part.base_offset == self.end_offset, "another one writes to the topic"
        self._sequences[producer] = sequence + len(records)
        for offset, (key, value) in enumerate(records, self.end_offset):
            self.history.append(Update(offset, key, value))

    def stored(self) -> list[Update]:
        """The records as the broker has them now."""
        with connect(self.broker) as wire:
            return read_updates(wire, self.name, self.end_offset)

    def compact(self, most_records: int) -> list[Update]:
        """Wait until so few records are left; what is left."""
        return self.compact_until(
            lambda left: len(left) <= most_records, f"has {most_records} records at most"
        )

    def compact_until(self, is_over: Callable[[list[Update]], bool], what: str) -> list[Update]:
        """Wait until what is left is as it should be; what is left.

        Meanwhile records of another key come behind: neither broker compacts its newest segment.
        """
        next_filler = 0.0

        def left() -> list[Update] | None:
            nonlocal next_filler
            if time.monotonic() >= next_filler:
                self.write([(_FILLER, b"%d" % self.end_offset)])
                next_filler = time.monotonic() + _FILLER_EVERY_SEC
            found = self.stored()
            return found if is_over(found) else None

        return wait_until(left, f"{self.name} {what}") or []

    def newest(self, end_offset: int | None = None) -> dict[bytes, Update]:
        """The newest update of each key below the offset."""
        return {one.key: one for one in self.history[:end_offset]}


def compacted_topic(broker: Any, name: str, configs: Mapping[str, object] | None = None) -> CompactedTopic:
    """A new topic of one partition."""
    create_topic(broker, name, 1, {**DIRTY_AT_ONCE, **(configs or {})})
    return CompactedTopic(broker, name)


def gappy_topic(broker: Any, name: str, codecs: Iterable[str] = CODECS) -> CompactedTopic:
    """A topic of which most is gone: records, whole batches, and long rows of batches.

    Some of what is gone was the last of its producer, whose batch stays without a record. The codecs take turns.
    """
    topic = compacted_topic(broker, name)
    chance = random.Random(name)
    turns = itertools.cycle(codecs)
    with connect(broker) as wire:
        producers = [init_producer_id(wire) for _ in range(3)]
        for count in (1, 7, 1, 20, 3, 1, 1, 30):
            for number in range(3):
                keys = [b"key-%d" % chance.randrange(12) for _ in range(count)]
                records = [(key, _value(chance, topic.end_offset + at)) for at, key in enumerate(keys)]
                producer = chance.choice([*producers, (-1, -1)])
                topic.write_on(wire, records, codec=next(turns), producer=producer)
                if not number:
                    # A key of its own: it stays, and lies between gaps.
                    topic.write_on(wire, [(b"only-%d" % topic.end_offset, b"stays")])
    # Some fillers, and what one compaction has not looked at yet.
    left = topic.compact(len(topic.newest()) + 12)
    assert len(left) < topic.end_offset / 2
    return topic


def _value(chance: random.Random, offset: int) -> bytes | None:
    return None if chance.random() < 0.15 else b"%d " % offset + chance.randbytes(10).hex().encode()


def read_updates(wire: Wire, topic: str, end_offset: int) -> list[Update]:
    """Every record below the end, by raw requests."""
    found: list[Update] = []
    offset = 0
    while offset < end_offset:
        batches = wait_until(
            functools.partial(_batches_at, wire, topic, offset), f"{topic} has a batch at {offset} or above"
        )
        found += [
            Update(one.offset, one.key, one.value)
            for batch in batches
            for one in batch
            if one.offset >= offset
        ]
        last_offset = batches[-1].base_offset + batches[-1].last_offset_delta
        assert last_offset >= offset, f"the reply to a fetch at {offset} ends at {last_offset}"
        offset = last_offset + 1
    return found


def count_records(broker: Any, topic: str) -> tuple[int, int]:
    """The end offset of partition 0 of any topic, and how many records it has."""
    with connect(broker) as wire:
        end_offset = list_offset(wire, topic, 0, LATEST).offset
        return end_offset, len(read_updates(wire, topic, end_offset))


def _batches_at(wire: Wire, topic: str, offset: int) -> list[Any]:
    part = fetch(wire, topic, {0: offset}, partition_max_bytes=_FETCH_BYTES)[0]
    if part.error_code == KAFKA_STORAGE_ERROR:
        return []  # As clients do: a segment may be replaced while it is read.
    assert part.error_code == 0, f"error {part.error_code} at {offset} of {topic}"
    return list(batches_in(part.records))


def check_read(read: Iterable[Update], topic: CompactedTopic, begin: int, end_offset: int) -> None:
    """Raises AssertionError unless a consumer that began at an offset has read what it must have, and nothing else.

    Every record that it read is one that was written there, in order; and of each key that was updated at or after
    the beginning and below the end it has an update that is no older than the newest of these, or will have one: the
    newest of all is behind what it has read.
    """
    at = begin - 1
    last: dict[bytes, int] = {}
    for one in read:
        assert one.offset > at, f"from {begin}: offset {one.offset} after {at}"
        assert topic.history[one.offset] == one, (
            f"from {begin}: {one}, written was {topic.history[one.offset]}"
        )
        at = one.offset
        last[one.key] = one.offset
    newest = topic.newest()
    for key, owed in topic.newest(end_offset).items():
        if owed.offset >= begin and newest[key].offset <= at:
            assert last.get(key, -1) >= owed.offset, f"from {begin}: not the newest update of {key!r}, {owed}"


def _batch(
    records: Sequence[tuple[bytes, bytes | None]], codec: str, producer: tuple[int, int], sequence: int
) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODECS[codec],
        is_transactional=False,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        batch_size=1 << 30,
    )
    now_ms = int(time.time() * 1000)
    for delta, (key, value) in enumerate(records):
        builder.append(delta, now_ms, key, value, [])
    return bytes(builder.build())

"""Whatever happens to objects and indexes, a reader gets what was written, or an error: never anything else."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.partition_record import EpochStart
from kafscale.log.reading.segment_loader import ReadSizes
from tests.log.stored_log import Reading, StoredLog, StoredSegmentFile, stored_batch
from tests.support.controlled_store import ControlledStore
from tests.support.nightly import by_day

WHOLE = ReadSizes(whole_bytes=1 << 20, chunk_bytes=1 << 20)
IN_CHUNKS = ReadSizes(whole_bytes=64, chunk_bytes=300)
SIZES = st.sampled_from([WHOLE, IN_CHUNKS, ReadSizes(whole_bytes=400, chunk_bytes=150)])

FIRST_OFFSET = 1000
COUNTS = st.integers(1, 4)
GAPS = st.sampled_from([0, 0, 0, 0, 0, 0, 1, 2])
VALUE_BYTES = st.integers(0, 60)


@st.composite
def logs(draw: st.DrawFn) -> StoredLog:
    """Some segments, merged ones perhaps; gaps as failovers leave them, and several leaders."""
    offset, epoch = FIRST_OFFSET, 3
    epochs = [EpochStart(epoch, offset)]
    segments = []
    for _ in range(draw(st.integers(1, 3))):
        merged = draw(st.booleans())
        batches = []
        for count, gap, value_bytes in draw(
            st.lists(st.tuples(COUNTS, GAPS, VALUE_BYTES), min_size=1, max_size=14 if merged else 5)
        ):
            if merged and draw(st.integers(0, 9)) == 0:
                epoch += 2
                epochs.append(EpochStart(epoch, offset))
            if merged:
                offset += gap
            values = [b"%d " % (offset + number) * value_bytes for number in range(count)]
            batches.append(stored_batch(offset, values, epoch))
            offset += count
        segments.append(StoredSegmentFile(batches, merged=merged, interval=draw(st.sampled_from([1, 3, 10]))))
    remembered = draw(st.sampled_from([0, 0, len(epochs) // 2, len(epochs)]))
    return StoredLog(segments, epochs[remembered:])


@dataclass(frozen=True)
class Damage:
    """Damage of an object: `change` of its bytes, shown to `times` readers."""

    what: str
    change: Callable[[bytes], bytes]

    def __repr__(self) -> str:
        return self.what


def _flip(places: list[tuple[float, int]]) -> Damage:
    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        for share, bits in places:
            if changed:
                changed[int(share * len(changed))] ^= bits
        return bytes(changed)

    return Damage(f"flip {places}", change)


def _cut(share: float) -> Damage:
    return Damage(f"cut at {share}", lambda data: data[: int(share * len(data))])


def _extend(more: bytes) -> Damage:
    return Damage(f"extend by {more!r}", lambda data: data + more)


def _move(start: float, length: int, to: float) -> Damage:
    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        piece = data[int(start * len(data)) :][:length]
        place = int(to * len(data))
        changed[place : place + len(piece)] = piece
        return bytes(changed[: len(data)])

    return Damage(f"copy {length} bytes from {start} to {to}", change)


def _flip_what_no_batch_crc_covers(batch: float, place: int, bits: int) -> Damage:
    """A byte of some batch's base offset, length or leader epoch."""

    def change(data: bytes) -> bytes:
        if data[:4] != b"KAFS":
            return data
        position, starts = 32, []
        while position < len(data) - 16:
            starts.append(position)
            position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        at = starts[int(batch * len(starts))] + place
        return data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]

    return Damage(f"flip byte {place} of the batch at {batch}", change)


SHARES = st.floats(0, 1, exclude_max=True, allow_nan=False)
DAMAGES = st.one_of(
    st.lists(st.tuples(SHARES, st.integers(1, 255)), min_size=1, max_size=3).map(_flip),
    SHARES.map(_cut),
    st.binary(min_size=1, max_size=30).map(_extend),
    st.builds(_move, SHARES, st.integers(1, 80), SHARES),
    st.builds(
        _flip_what_no_batch_crc_covers,
        SHARES,
        st.sampled_from([0, 5, 6, 7, 7, 11, 12, 14, 15, 15]),
        st.integers(1, 7),
    ),
)


async def check_reads(
    log: StoredLog, reading: Reading, asked: list[tuple[int, int]], *, must_succeed: bool
) -> None:
    """Every answer is the beginning of what was written from there on, in whole batches, or an error."""
    for after, max_bytes in asked:
        offset = FIRST_OFFSET + after % (log.record.log_end_offset - FIRST_OFFSET)
        expected = log.batches_from(offset)
        try:
            found = await reading.fetch(offset, max_bytes)
        except (CorruptDataError, StoreError):
            assert not must_succeed
            continue
        assert found, "neither records nor an error"
        ends = {sum(map(len, expected[:count])) for count in range(len(expected) + 1)}
        assert len(found) in ends
        assert found == b"".join(expected)[: len(found)]


ASKED = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 900)), min_size=1, max_size=6)


@given(logs(), SIZES, ASKED, st.sampled_from([0, 2000, 1 << 20]), st.sampled_from([0, 2]))
def test_what_was_written_is_read(
    log: StoredLog, sizes: ReadSizes, asked: list[tuple[int, int]], cache_bytes: int, read_ahead: int
) -> None:
    async def play() -> None:
        objects = ControlledStore()
        await log.put_into(objects)
        reading = Reading(
            log, objects, objects, sizes=sizes, cache_bytes=cache_bytes, read_ahead_segments=read_ahead
        )
        await check_reads(log, reading, asked, must_succeed=True)
        assert await reading.drain(FIRST_OFFSET, 500) == b"".join(log.batches_from(FIRST_OFFSET))
        assert reading.metrics.index_rebuilds == 0
        await reading.close()

    asyncio.run(play())


@settings(max_examples=by_day(40, by_night=3_000))
@given(st.data(), logs(), SIZES, ASKED, st.sampled_from([1, 2, 3, 1_000_000]), st.sampled_from([0, 1 << 20]))
def test_damage_never_yields_wrong_records(
    data: st.DataObject,
    log: StoredLog,
    sizes: ReadSizes,
    asked: list[tuple[int, int]],
    times: int,
    index_cache_bytes: int,
) -> None:
    async def play() -> None:
        objects = ControlledStore()
        await log.put_into(objects)
        keys = [key for segment in log.segments for key in (segment.key, segment.index_key)]
        damaged = data.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=2, unique=True))
        for key in damaged:
            objects.lie(key, data.draw(DAMAGES).change, times=times)
        reading = Reading(log, objects, objects, sizes=sizes, index_cache_bytes=index_cache_bytes)
        # Whatever happens to indexes, there are the segments themselves.
        only_indexes = all(key.endswith(".index") for key in damaged)
        await check_reads(log, reading, asked, must_succeed=only_indexes)
        await reading.close()

    asyncio.run(play())


@given(st.data(), logs(), SIZES, ASKED)
def test_swapped_or_missing_objects_never_yield_wrong_records(
    data: st.DataObject, log: StoredLog, sizes: ReadSizes, asked: list[tuple[int, int]]
) -> None:
    async def play() -> None:
        objects = ControlledStore()
        await log.put_into(objects)
        keys = [key for segment in log.segments for key in (segment.key, segment.index_key)]
        key = data.draw(st.sampled_from(keys))
        if data.draw(st.booleans()):
            await objects.inner.delete([key])
        else:
            other = await objects.inner.get(data.draw(st.sampled_from(keys)))
            await objects.inner.put(key, [other])
        reading = Reading(log, objects, objects, sizes=sizes)
        await check_reads(log, reading, asked, must_succeed=key.endswith(".index"))
        await reading.close()

    asyncio.run(play())


@given(st.data(), logs(), SIZES, ASKED)
def test_replica_with_older_topic_or_damage_is_skipped(
    data: st.DataObject, log: StoredLog, sizes: ReadSizes, asked: list[tuple[int, int]]
) -> None:
    """The older topic's segments lie under the same keys, with the same offsets and lower leader epochs."""

    async def play() -> None:
        primary, replica = ControlledStore(), ControlledStore()
        await log.put_into(primary)
        complete = StoredLog(log.segments, [EpochStart(3, FIRST_OFFSET)])
        runs = dict.fromkeys(header.partition_leader_epoch for header in log.headers())
        starts = {
            epoch: min(h.base_offset for h in log.headers() if h.partition_leader_epoch == epoch)
            for epoch in runs
        }
        complete = StoredLog(log.segments, [EpochStart(epoch, start) for epoch, start in starts.items()])
        older = StoredLog([_older(segment, data.draw(st.booleans())) for segment in log.segments])
        await older.put_into(replica)
        for segment in log.segments:
            match data.draw(st.sampled_from(["older", "same", "index only", "damaged"])):
                case "same":
                    await replica.inner.put(segment.key, [segment.data])
                    await replica.inner.put(segment.index_key, [segment.index])
                case "index only":
                    await replica.inner.put(segment.index_key, [segment.index])
                case "damaged":
                    await replica.inner.put(segment.key, [data.draw(DAMAGES).change(segment.data)])
        reading = Reading(complete, replica, primary, sizes=sizes)
        await check_reads(complete, reading, asked, must_succeed=True)
        assert reading.metrics.index_rebuilds == 0
        await reading.close()

    asyncio.run(play())


def _older(segment: StoredSegmentFile, same_layout: bool) -> StoredSegmentFile:
    batches = [
        stored_batch(
            header.base_offset,
            [b"old" * (1 if same_layout else number + 1) for number in range(header.record_count)],
            leader_epoch=1,
        )
        for header in segment.headers
    ]
    return StoredSegmentFile(batches, merged=bool(segment.reference.object_key))

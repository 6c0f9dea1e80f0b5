"""The limits of the caches and of spare memory, under readers of all kinds at once."""

import asyncio
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.log.partition import Partition
from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.log.reading.read import Read
from kafscale.log.reading.segment_loader import ReadSizes
from kafscale.memory.slab import Slab
from tests.log.stored_log import MIB, Reading, StoredLog, StoredSegmentFile, partition_of, stored_batch
from tests.support.controlled_store import ControlledStore
from tests.support.nightly import by_day

KIB = 1024
SIZES = ReadSizes(whole_bytes=1 * MIB, chunk_bytes=600 * KIB)
PARTITIONS = 4
READERS = 6


def _log() -> StoredLog:
    """Segments of a few bytes up to 2.5 MiB, each batch different from all others."""
    segments, offset = [], 0
    for batches, value_bytes in (
        (1, 10),
        (2, 300),
        (3, 200 * KIB),
        (12, 200 * KIB),
        (1, 700 * KIB),
        (40, 1000),
        (9, 280 * KIB),
    ):
        made = []
        for _ in range(batches):
            made.append(stored_batch(offset, [b"%08d" % offset * (value_bytes // 8), b"second"]))
            offset += 2
        segments.append(StoredSegmentFile(made, merged=batches > 5))
    return StoredLog(segments)


LOG = _log()


class Watched(Reading):
    """Counts slabs that are in use, and checks the limits whenever anything has changed."""

    def __init__(
        self, objects: ControlledStore, cache_bytes: int, index_cache_bytes: int, spare_bytes: int
    ) -> None:
        super().__init__(
            LOG,
            objects,
            objects,
            sizes=SIZES,
            cache_bytes=cache_bytes,
            index_cache_bytes=index_cache_bytes,
            spare_bytes=spare_bytes,
            read_ahead_segments=2,
        )
        self.spare_limit_bytes = spare_bytes
        self.in_use: set[Slab] = set()
        acquire, release = self.pool.acquire_together, self.pool.release

        def acquired(size_bytes: int) -> list[Slab]:
            slabs = acquire(size_bytes)
            assert self.in_use.isdisjoint(slabs)
            self.in_use.update(slabs)
            return slabs

        def released(slab: Slab) -> None:
            self.in_use.remove(slab)
            release(slab)

        self.pool.acquire_together, self.pool.release = acquired, released  # type: ignore[method-assign]

    def check(self) -> None:
        cache, layouts = self.reader.cache, self.loader.layouts.cache
        assert cache.used_bytes <= cache.limit_bytes
        assert cache.used_bytes == sum(one.size_bytes for one, _ in cache._entries.values())
        assert layouts.used_bytes <= layouts.limit_bytes
        assert self.pool.spare_bytes <= self.spare_limit_bytes
        chunks = [chunk for found in self.reader._chunks._chunks.values() for chunk in found]
        cached = [one for one, _ in cache._entries.values() if not one.is_whole]
        assert len(chunks) == len(cached)
        assert set(chunks) == set(cached)
        ahead = [one for one, _ in cache._entries.values() if one.is_ahead]
        assert self.reader._ahead._unused_bytes == sum(one.size_bytes for one in ahead)


async def _reads(watched: Watched, partition: Partition, random: Random) -> None:
    """Some fetches, whose replies leave at once or late, or whose client has left before."""
    kept: list[tuple[Read, bytes]] = []
    for _ in range(8):
        offset = random.randrange(LOG.record.log_end_offset)
        max_bytes = random.choice([1, 5000, MIB, 4 * MIB])
        held, missing = watched.reader.plan(partition, offset, max_bytes)
        loaded: list[CachedSegment] = [segment.hold() for segment in held]
        loads = [asyncio.create_task(watched.reader.load(partition, *one)) for one in missing]
        if loads and random.random() < 0.2:
            await asyncio.sleep(0)
            for load in loads:
                load.cancel()
        outcomes = await asyncio.gather(*loads, return_exceptions=True)
        loaded += [outcome for outcome in outcomes if isinstance(outcome, CachedSegment)]
        watched.check()
        read = watched.reader.read(partition, offset, max_bytes, True, loaded)
        for segment in loaded:
            segment.release()
        expected = b"".join(LOG.batches_from(offset))[: read.size_bytes]
        kept.append((read, expected))
        watched.check()
        while kept and random.random() < 0.6:
            read, expected = kept.pop(random.randrange(len(kept)))
            assert b"".join(read.views) == expected
            read.release()
        if random.random() < 0.1:
            watched.reader.forget(partition)
    for read, expected in kept:
        assert b"".join(read.views) == expected
        read.release()


@settings(max_examples=by_day(12, by_night=250), deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0, 500 * KIB, 3 * MIB, 20 * MIB]),
    st.sampled_from([0, 700, MIB]),
    st.sampled_from([0, 2 * MIB, 16 * MIB]),
)
def test_replies_are_right_within_limits_on_reused_memory(
    seed: int, cache_bytes: int, index_cache_bytes: int, spare_bytes: int
) -> None:
    async def play() -> None:
        random, objects = Random(seed), ControlledStore()
        await LOG.put_into(objects)
        watched = Watched(objects, cache_bytes, index_cache_bytes, spare_bytes)
        partitions = [partition_of(LOG.record, number) for number in range(PARTITIONS)]
        readers = [
            _reads(watched, random.choice(partitions), Random(random.random())) for _ in range(READERS)
        ]
        await asyncio.gather(*readers)
        await watched.close()
        watched.check()
        for partition in partitions:
            watched.reader.forget(partition)
        assert not watched.in_use, "a slab was not given back"
        assert not watched.reader.is_short_of_memory
        assert watched.reader._reply_memory._copied_bytes == 0

    asyncio.run(play())

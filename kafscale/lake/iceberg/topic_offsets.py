"""The offsets that a compacted topic still has: what its table has besides them was compacted away."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from kafscale.lake.iceberg.hashed_rows import HashedRows
from kafscale.lake.iceberg.span_tallies import span_places
from kafscale.lake.reconciling.spans import Span

_CHUNK_BITS: Final = 16
_CHUNK_BYTES: Final = (1 << _CHUNK_BITS) // 8


class TopicOffsets:
    """A set of offsets of the spans, with a bit for each, so that a billion of them take 125 MB."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans: dict[int, list[Span]] = {}
        for one in sorted(spans, key=lambda span: (span.partition, span.first)):
            self._spans.setdefault(one.partition, []).append(one)
        self._chunks: dict[tuple[int, int], Any] = {}

    def add(self, rows: HashedRows) -> None:
        """The topic has these."""
        for partition in np.unique(rows.partitions).tolist():
            offsets = rows.offsets[rows.partitions == partition]
            numbers, places = offsets >> _CHUNK_BITS, offsets & ((1 << _CHUNK_BITS) - 1)
            for number in np.unique(numbers).tolist():
                chunk = self._chunks.setdefault((partition, number), np.zeros(_CHUNK_BYTES, np.uint8))
                found = places[numbers == number]
                np.bitwise_or.at(chunk, found >> 3, (1 << (found & 7)).astype(np.uint8))

    def misses(self, rows: HashedRows) -> Any:
        """True for each row that is in one of the spans, and whose record the topic has not."""
        missing = np.zeros(len(rows.offsets), np.bool_)
        for partition, spans in self._spans.items():
            wanted = rows.partitions == partition
            offsets = rows.offsets[wanted]
            missing[wanted] = (span_places(spans, offsets) >= 0) & ~self._has(partition, offsets)
        return missing

    def _has(self, partition: int, offsets: Any) -> Any:
        has = np.zeros(len(offsets), np.bool_)
        numbers, places = offsets >> _CHUNK_BITS, offsets & ((1 << _CHUNK_BITS) - 1)
        for number in np.unique(numbers).tolist():
            chunk = self._chunks.get((partition, number))
            if chunk is not None:
                chosen = numbers == number
                found = places[chosen]
                has[chosen] = (chunk[found >> 3] >> (found & 7)) & 1 == 1
        return has

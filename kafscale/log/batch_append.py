"""Appends a batch to a segment's buffer by its topic's rules: compressed, and stamped with the append time."""

from dataclasses import dataclass

from kafscale.log.writing.compression_trials import CompressionTrials
from kafscale.log.writing.segment_buffer import SegmentBuffer
from kafscale.memory.slab import SlabPool
from kafscale.protocol.compression import Codec
from kafscale.protocol.record_batch import BatchHeader, compress_into, stamp_log_append_time


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRules:
    """The topic's configuration, as far as it concerns appends. `codec` None keeps batches as they are received.

    `codec_level`: None for the codec's default. `requires_keys`: the topic is compacted.
    """

    codec: Codec | None
    log_append_time: bool
    segment_bytes: int
    codec_level: int | None = None
    requires_keys: bool = False


def append_batch(
    buffer: SegmentBuffer,
    batch: memoryview,
    header: BatchHeader,
    rules: AppendRules,
    now_ms: int,
    pool: SlabPool,
    trials: CompressionTrials,
) -> None:
    """Copy a validated batch to the end of the buffer. `header`: the batch's own; `now_ms`: Unix milliseconds."""
    size_bytes = len(batch)
    room = buffer.room(size_bytes, pool)
    codec = header.codec
    written = 0
    if rules.codec is not None and codec == Codec.NONE and trials.is_due(size_bytes):
        written = compress_into(batch, header, rules.codec, room, rules.codec_level)
        trials.tried(size_bytes, shrank=written > 0)
        if written:
            codec = rules.codec
    if not written:
        room[:] = batch
        written = size_bytes
    max_timestamp_ms = header.max_timestamp
    if rules.log_append_time:
        stamp_log_append_time(room, 0, now_ms)
        max_timestamp_ms = now_ms
    buffer.add(written, header.record_count, max_timestamp_ms, codec)

"""Decompresses batches for clients that may not have the codec: KafkaJS, kafka-python, aiokafka.

By default a broker compresses with snappy what its producers left uncompressed. A client whose own producer does not
compress may be without snappy, and fails at such a batch. Clients that have the codecs are known by their software's
name in ApiVersions (KIP-511); for all others batches are decompressed. See docs/decisions/0049.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from kafscale.errors import CorruptDataError
from kafscale.log.reading.log_reader import LogReader
from kafscale.log.reading.read import Read
from kafscale.ops.metrics import Metrics
from kafscale.protocol.plain_batches import PlainBatches, PlainLimits, plain_batches

logger = logging.getLogger(__name__)

ALL_CLIENTS: Final = "*"
CLIENTS_WITH_CODECS: Final = frozenset(
    (
        "apache-kafka-java",
        "librdkafka",
        "confluent-kafka-python",
        "confluent-kafka-go",
        "confluent-kafka-dotnet",
        "confluent-kafka-javascript",
        "kgo",
        "sarama",
        "rskafka",
    )
)
"""Software names of clients that have snappy, lz4 and zstd without an optional dependency."""

# The most bytes of a reply, but for its first batch.
REPLY_MAX_BYTES = 4 * 1024 * 1024
# A batch of more bytes is sent as it is. One that the broker compressed has no more than `max.message.bytes`.
BATCH_MAX_BYTES = 16 * 1024 * 1024
# The same while clients that take their replies slowly keep much memory.
SHORT_BATCH_MAX_BYTES = 2 * 1024 * 1024
# Replies that are decompressed concurrently: each keeps a processor busy, and takes memory.
_AT_ONCE = 2


class Decompression:
    """For all connections of a broker. `further`: more software names, or `ALL_CLIENTS`."""

    def __init__(self, further: Sequence[str], reader: LogReader, metrics: Metrics) -> None:
        self._names = CLIENTS_WITH_CODECS.union(further)
        self._reader = reader
        self._metrics = metrics.decompression
        self._turns = asyncio.Semaphore(_AT_ONCE)

    @property
    def is_for_none(self) -> bool:
        """True if every client counts as reading all codecs, even one that has not named its software."""
        return ALL_CLIENTS in self._names

    def has_codecs(self, software_name: str) -> bool:
        """True if a client of this name reads all codecs."""
        return self.is_for_none or software_name in self._names

    async def apply(self, reads: Sequence[tuple[Read, int]], max_bytes: int) -> None:
        """Decompress a reply's reads, each with its own limit in bytes; `max_bytes` limits all together.

        Later batches that do not fit any more are removed from the reads.
        """
        async with self._turns:
            is_short = self._reader.is_short_of_memory
            nothing_yet = True
            for read, limit_bytes in reads:
                if read.size_bytes:
                    limits = PlainLimits(
                        reply_bytes=min(limit_bytes, max_bytes),
                        batch_bytes=SHORT_BATCH_MAX_BYTES if is_short else BATCH_MAX_BYTES,
                        at_least_one=nothing_yet,
                    )
                    await self._replace(read, limits)
                    max_bytes -= read.size_bytes
                    nothing_yet = nothing_yet and not read.size_bytes

    async def _replace(self, read: Read, limits: PlainLimits) -> None:
        job = asyncio.ensure_future(asyncio.to_thread(_plain, read.views, limits))
        try:
            plain = await asyncio.shield(job)
        except asyncio.CancelledError:
            # The thread reads the caller's memory.
            while not job.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([job])
            raise
        except CorruptDataError as damage:
            logger.warning("sent batches as they are stored", extra={"problem": str(damage)})
            return
        if plain is not None:
            self._metrics.batches += plain.decompressed
            self._metrics.bytes += plain.decompressed_bytes
            self._reader.replace(read, plain.parts, plain.size_bytes, plain.offsets)


def _plain(views: Sequence[memoryview], limits: PlainLimits) -> PlainBatches | None:
    return plain_batches(views[0] if len(views) == 1 else memoryview(b"".join(views)), limits)

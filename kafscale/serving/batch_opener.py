"""Looks into the records of the few produced batches that need it, on a thread, one batch at a time.

Old message sets are converted; the records of a batch that claims unlikely many are counted; those for a compacted
topic must have keys. Each kind has turns of its own: old producers do not wait behind a likely attack.
"""

from functools import partial
from typing import Final

from kafscale.protocol.keyed_records import check_keys
from kafscale.protocol.legacy_records import convert_message_set
from kafscale.protocol.record_batch import BatchHeader
from kafscale.protocol.record_density import count_records
from kafscale.tasks.thread_turns import ThreadTurns

_GROWTH: Final = 16
_MOST_OPENED_BYTES: Final = 64 * 1024 * 1024


def opened_limit_bytes(max_message_bytes: int) -> int:
    """The most bytes of a compressed batch after decompression: 16 times the largest batch, or 64 MiB.

    More only where a batch itself may be larger than 64 MiB.
    """
    return min(_GROWTH * max_message_bytes, max(_MOST_OPENED_BYTES, max_message_bytes))


class BatchOpener:
    """For all connections of a broker."""

    def __init__(self) -> None:
        self._conversions = ThreadTurns()
        self._counts = ThreadTurns()
        self._key_checks = ThreadTurns()

    async def convert(self, message_set: memoryview, max_message_bytes: int) -> memoryview:
        """The batch in place of a message set, which must stay unchanged. Raises `InvalidBatchError`."""
        limit_bytes = opened_limit_bytes(max_message_bytes)
        convert = partial(convert_message_set, message_set, max_message_bytes, limit_bytes)
        return memoryview(await self._conversions.run(convert))

    async def check_keys(self, batch: memoryview, header: BatchHeader, max_message_bytes: int) -> None:
        """Raises `KeylessRecordsError` unless all records have keys, `InvalidBatchError` for what is no record.

        It must stay unchanged.
        """
        await self._key_checks.run(partial(check_keys, batch, header, opened_limit_bytes(max_message_bytes)))

    async def count(self, batch: memoryview, header: BatchHeader, max_message_bytes: int) -> None:
        """Raises `InvalidBatchError` unless the batch has as many records as it claims. It must stay unchanged."""
        await self._counts.run(partial(count_records, batch, header, opened_limit_bytes(max_message_bytes)))

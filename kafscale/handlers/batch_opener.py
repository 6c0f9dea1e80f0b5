"""Looks into the records of the few produced batches that need it, on a thread, one batch at a time.

Old message sets are converted; the records of a batch that claims unlikely many are counted. More threads would
take the interpreter from the event loop and from each other, and each may take the memory of an opened batch.
"""

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from kafscale.protocol.legacy_records import convert_message_set
from kafscale.protocol.record_batch import BatchHeader
from kafscale.protocol.record_density import count_records

_GROWTH: Final = 16
_MOST_OPENED_BYTES: Final = 64 * 1024 * 1024

_P = ParamSpec("_P")
_T = TypeVar("_T")


def opened_limit_bytes(max_message_bytes: int) -> int:
    """The most that one compressed batch may hold when it is opened: 16 times the largest batch, or 64 MiB.

    More only where a batch itself may be larger than 64 MiB.
    """
    return min(_GROWTH * max_message_bytes, max(_MOST_OPENED_BYTES, max_message_bytes))


class BatchOpener:
    """For all connections of a broker."""

    def __init__(self) -> None:
        self._one = asyncio.Semaphore(1)

    async def convert(self, message_set: memoryview, max_message_bytes: int) -> memoryview:
        """The batch in place of a message set, which must stay as it is. Raises InvalidBatchError."""
        limit_bytes = opened_limit_bytes(max_message_bytes)
        return memoryview(await self._run(convert_message_set, message_set, max_message_bytes, limit_bytes))

    async def count(self, batch: memoryview, header: BatchHeader, max_message_bytes: int) -> None:
        """Raise InvalidBatchError if the batch, which must stay as it is, does not hold what it claims."""
        await self._run(count_records, batch, header, opened_limit_bytes(max_message_bytes))

    async def _run(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        await self._one.acquire()
        work = asyncio.create_task(asyncio.to_thread(function, *args, **kwargs))
        work.add_done_callback(self._ended)
        try:
            # A thread cannot be cancelled: the next batch waits for it, even when its connection has ended.
            return await asyncio.shield(work)
        finally:
            # An exception of the task refers to this frame by its traceback, and that to the whole request.
            del work

    def _ended(self, work: asyncio.Task[_T]) -> None:
        self._one.release()
        if not work.cancelled():
            work.exception()  # If the connection has ended, asyncio reports an exception that stays unread.

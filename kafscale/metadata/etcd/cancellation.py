"""Keeps cancellations intact around calls of gRPC, which loses some and makes up others."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class CallCancelledError(Exception):
    """The connection was closed under a call, which may have been done."""


@contextmanager
def cancellation_kept(endpoint: str) -> Iterator[None]:
    """Make `CancelledError` leave the block if, and only if, this task was cancelled in it.

    gRPC catches a cancellation that meets the end of a call and returns the call's own answer or error instead:
    a loop that is cancelled once would never end. And it raises `CancelledError` when a channel is closed, which
    is not meant for the caller: that becomes `CallCancelledError`.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()

    def was_cancelled() -> bool:
        return task is not None and task.cancelling() > before

    try:
        yield
    except asyncio.CancelledError:
        if was_cancelled():
            raise
        raise CallCancelledError(f"the connection to {endpoint} was closed") from None
    except Exception as lost_to:
        if was_cancelled():
            raise asyncio.CancelledError from lost_to
        raise
    if was_cancelled():
        raise asyncio.CancelledError

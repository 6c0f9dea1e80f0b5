"""Work on a thread that clients can make long: one piece at a time, in the order in which it came."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def _nothing() -> None:
    pass


class ThreadTurns:
    """Takes one thread at a time from those that everything shares.

    More would take the interpreter from the event loop and from each other, and the rest of the broker would find
    no thread. Memory is bounded by what one piece may take.
    """

    def __init__(self) -> None:
        self._one = asyncio.Semaphore(1)

    async def run(self, work: Callable[[], _T], ended: Callable[[], None] = _nothing) -> _T:
        """Call `work` on a thread when it is its turn.

        A thread cannot be cancelled: `ended` is called once, on the event loop, when `work` needs what it was given
        no longer, which is after a cancelled call of this.
        """
        try:
            await self._one.acquire()
        except BaseException:
            ended()
            raise
        task = asyncio.create_task(asyncio.to_thread(work))
        task.add_done_callback(lambda done: self._ended(done, ended))
        try:
            return await asyncio.shield(task)
        finally:
            # An exception of the task refers to this frame by its traceback, and that to the whole request.
            del task

    def _ended(self, done: asyncio.Task[_T], ended: Callable[[], None]) -> None:
        self._one.release()
        if not done.cancelled():
            done.exception()  # If the caller is cancelled, asyncio reports an exception that stays unread.
        ended()

"""Where the records of a compaction are looked into: a process of its own, or, in a simulation, the broker itself."""

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast

from kafscale.log.compaction.cleaner import Cleaner, CleaningRules, CleaningTotals
from kafscale.log.compaction.worker import encode_begin, new_cleaner
from kafscale.log.compaction.worker_frames import Frame, read_frame, write_frame
from kafscale.protocol.types import Buffer

logger = logging.getLogger(__name__)

_END_SEC: Final = 10.0


class CleaningFailedError(Exception):
    """The process that looks into records could not be started, has died, or met a defect; a later one may do."""


class Cleaning(Protocol):
    """One compaction of one partition; every method raises `CleaningFailedError`. All batches are whole ones."""

    async def map(self, batches: Sequence[Buffer]) -> tuple[bool, int]:
        """Take the keys of dirty batches; whether the map is full, and the offset that it reaches to."""

    async def clean(self, batches: Sequence[Buffer]) -> bytes:
        """The rest of the batches, as far as it is decided."""

    async def end_object(self) -> tuple[bytes, CleaningTotals]:
        """The last bytes of the object, and what was counted since the last one."""

    async def again(self) -> None:
        """The batches of the object that was ended last come once more."""


class CleaningWork(Protocol):
    """Begins compactions."""

    def begin(
        self, rules: CleaningRules, memory_bytes: int, most_keys: int
    ) -> AbstractAsyncContextManager[Cleaning]:
        """A compaction, for as long as the block lasts. Raises `CleaningFailedError`."""


class _InProcess:
    def __init__(self, cleaner: Cleaner) -> None:
        self._cleaner = cleaner

    async def map(self, batches: Sequence[Buffer]) -> tuple[bool, int]:
        """See `Cleaning`."""
        self._cleaner.map_batches(memoryview(b"".join(batches)))
        return self._cleaner.is_full, self._cleaner.map_end_offset

    async def clean(self, batches: Sequence[Buffer]) -> bytes:
        """See `Cleaning`."""
        return self._cleaner.clean(memoryview(b"".join(batches)))

    async def end_object(self) -> tuple[bytes, CleaningTotals]:
        """See `Cleaning`."""
        return self._cleaner.end_object()

    async def again(self) -> None:
        """See `Cleaning`."""
        self._cleaner.again()


class CleaningInProcess:
    """For a simulation, and for tests: the records are looked into on the event loop."""

    @asynccontextmanager
    async def begin(self, rules: CleaningRules, memory_bytes: int, most_keys: int) -> AsyncIterator[Cleaning]:
        """See `CleaningWork`."""
        yield _InProcess(new_cleaner(rules, memory_bytes, most_keys))


class WorkerProcess:
    """A process for one compaction. Requests and answers go through pipes, on a thread."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    @property
    def process_id(self) -> int:
        """The operating system's number of the process."""
        return self._process.pid

    async def begin(self, rules: CleaningRules, memory_bytes: int, most_keys: int) -> None:
        """Tell the process what it is to do."""
        # On a thread: a log may have very many aborted transactions.
        begin = await asyncio.to_thread(encode_begin, rules, memory_bytes, most_keys)
        await self._ask(Frame.BEGIN, begin)

    async def map(self, batches: Sequence[Buffer]) -> tuple[bool, int]:
        """See `Cleaning`."""
        is_full, map_end_offset = json.loads(await self._ask(Frame.MAP, *batches))
        return is_full, map_end_offset

    async def clean(self, batches: Sequence[Buffer]) -> bytes:
        """See `Cleaning`."""
        return await self._ask(Frame.CLEAN, *batches)

    async def end_object(self) -> tuple[bytes, CleaningTotals]:
        """See `Cleaning`."""
        rest, values = json.loads(await self._ask(Frame.END))
        return bytes.fromhex(rest), CleaningTotals(*values)

    async def again(self) -> None:
        """See `Cleaning`."""
        await self._ask(Frame.AGAIN)

    async def _ask(self, kind: Frame, *parts: Buffer) -> bytes:
        return await asyncio.to_thread(self._exchange, kind, parts)

    def _exchange(self, kind: Frame, parts: Sequence[Buffer]) -> bytes:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        try:
            write_frame(cast(BinaryIO, requests), kind, *parts)
            answer = read_frame(cast(BinaryIO, answers))
        except (OSError, EOFError, ValueError) as problem:
            raise CleaningFailedError(f"the compaction process has ended: {problem}") from problem
        if answer is None:
            raise CleaningFailedError(f"the compaction process has ended with status {self._process.poll()}")
        if answer[0] is Frame.FAILED:
            raise CleaningFailedError(f"the compaction process failed: {answer[1].decode(errors='replace')}")
        return answer[1]

    def end(self) -> None:
        """End the process, whatever it is at. For a thread: it waits."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SEC)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class CleaningProcesses:
    """A process for each compaction, so that its memory goes with it."""

    @asynccontextmanager
    async def begin(self, rules: CleaningRules, memory_bytes: int, most_keys: int) -> AsyncIterator[Cleaning]:
        """See `CleaningWork`."""
        worker = WorkerProcess(await asyncio.to_thread(_start))
        try:
            await worker.begin(rules, memory_bytes, most_keys)
            yield worker
        finally:
            await asyncio.shield(asyncio.to_thread(worker.end))


def _start() -> "subprocess.Popen[bytes]":
    # The package as it was found here, wherever the process looks for packages.
    package_folder = str(Path(__file__).parents[3])
    found = [package_folder, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "kafscale.log.compaction.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(found)},
        )
    except OSError as problem:
        raise CleaningFailedError(f"could not start the compaction process: {problem}") from problem

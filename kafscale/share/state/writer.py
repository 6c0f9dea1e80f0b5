"""Reads and writes the states of the share partitions that a broker leads.

Theory of operation. A write compares three keys: the state's own, the start that the group's coordinator has set, and
the partition's leader with this broker's claim. So a leader that was replaced and does not know it, or that has not
heard of another start, writes nothing. Writes of all partitions share store transactions; one whose compare was lost
fails alone.

A write whose answer was lost is unknown, not failed: the keys are read, and until they show how it has ended it is
tried again, the same bytes under the same compares, of which only one can take effect. Nothing else is written for
that partition meanwhile. A state that is found there, and is what was written, is a success.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from kafscale.errors import CorruptDataError, StoreError, StoreIndeterminateError, StoreUnavailableError
from kafscale.formats.share_start_record import decode_share_start
from kafscale.formats.share_state_record import ShareStateRecord, decode_share_state, encode_share_state
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.shared_reads import SharedReads
from kafscale.metadata.shared_writes import SharedWrites
from kafscale.metadata.store import ABSENT, Compare, KeyValue, MetadataStore, Put
from kafscale.metadata.write_batch import Write
from kafscale.share.state.opened import (
    Led,
    NextWrite,
    OpenShareState,
    ShareCompares,
    ShareLoadRefusal,
    ShareWriteResult,
    by_key,
)
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

RETRY_DELAY_SEC: Final = 0.2
_LINE_INTERVAL_SEC: Final = 10.0

TRANSACTIONS_AT_ONCE: Final = 1
"""Of one broker. A partition has one write in flight; with one transaction most partitions share the next."""


class ShareStateWriter:
    """One broker's."""

    def __init__(
        self,
        store: MetadataStore,
        retry_delay_sec: float = RETRY_DELAY_SEC,
        transactions_at_once: int = TRANSACTIONS_AT_ONCE,
    ) -> None:
        self._retry_delay_sec = retry_delay_sec
        self._writes = SharedWrites(store, transactions_at_once, "shared share states")
        self._reads = SharedReads(store, "reads of share states")
        self._tasks = TaskOwner()
        self._is_closed = False
        self._next_line_sec = float("-inf")

    async def load(self, partition: SharePartitionId, led: Led) -> OpenShareState | ShareLoadRefusal:
        """Read start and state from the store, not from a view of it: all that was answered as written is in it.

        Raises `StoreError` if the store does not answer, `CorruptDataError` and `UnknownFormatVersionError` for a
        record that cannot be read.
        """
        start_key, state_key = keys.share_start(partition), keys.share_state(partition)
        leader_key = keys.leader(led.topic, partition.partition)
        found = await self._reads.read((state_key, start_key, leader_key))
        if _revision(found, leader_key) != led.revision:
            return ShareLoadRefusal.FENCED
        if start_key not in found:
            return ShareLoadRefusal.NOT_INITIALIZED
        start = decode_share_start(start_key, found[start_key].value)
        state = decode_share_state(state_key, found[state_key].value) if state_key in found else None
        if state is not None and state.state_epoch > start.state_epoch:
            raise CorruptDataError(
                state_key,
                f"its state epoch is {state.state_epoch}; the start's is {start.state_epoch}, which is the most",
            )
        compares = ShareCompares(
            Compare(state_key, _revision(found, state_key)),
            Compare(start_key, found[start_key].mod_revision),
            Compare(leader_key, led.revision),
        )
        if state is not None and state.state_epoch != start.state_epoch:
            state = None  # Of an earlier start.
        return OpenShareState(partition, compares, start, state)

    async def write(self, opened: OpenShareState, record: ShareStateRecord) -> ShareWriteResult:
        """Return once it is known how the write has ended, however long the store is away.

        While one of the partition is in flight, the next one waits. A later record takes its place, and its result is
        that of both. After another result than WRITTEN each later write has the same.

        A cancellation ends the waiting only. Raises `ValueError` for a record that is not legal, or not of this
        start, `StoreIndeterminateError` if the writer is closed meanwhile.
        """
        if record.state_epoch != opened.start.state_epoch:
            raise ValueError(
                f"the state of {opened.state_key} has epoch {record.state_epoch}, "
                f"legal is that of its start, {opened.start.state_epoch}"
            )
        data = encode_share_state(record)
        if self._is_closed:
            raise _closed(opened)
        if opened.ended is not None:
            return opened.ended
        if opened.next_write is None:
            opened.next_write = NextWrite(data)
        opened.next_write.data = data
        # Several may wait for it: the cancellation of one is not to be that of all.
        ended = asyncio.shield(opened.next_write.ended)
        if not opened.is_writing:
            opened.is_writing = True
            self._tasks.spawn(self._run(opened), "write a share state")
        return await ended

    def abandon(self, opened: OpenShareState) -> None:
        """Stop to write it: this broker leads no more, or serves the group no more.

        Writes that wait are answered FENCED; one whose outcome is not known may take effect all the same.
        """
        if opened.ended is None:
            opened.ended = ShareWriteResult.FENCED

    async def close(self) -> None:
        """Cancel what is in flight: it may or may not take effect."""
        self._is_closed = True
        await self._tasks.close()
        await self._writes.close()
        await self._reads.close()

    async def _run(self, opened: OpenShareState) -> None:
        """Make the writes of one partition, one after the other."""
        current: NextWrite | None = None
        problem: Exception = _closed(opened)
        try:
            while opened.next_write is not None:
                current, opened.next_write = opened.next_write, None
                result = opened.ended or await self._write(opened, current.data)
                if result is not ShareWriteResult.WRITTEN:
                    opened.ended = result
                current.end(result)
        except Exception as defect:
            # Also a store that refuses the write as illegal. How the last attempt has ended is not known.
            opened.ended = ShareWriteResult.FENCED
            problem = defect
            raise
        finally:
            opened.is_writing = False
            for left in (current, opened.next_write):
                if left is not None:
                    left.end(problem)
            opened.next_write = None

    async def _write(self, opened: OpenShareState, data: bytes) -> ShareWriteResult:
        """Try until the outcome is known."""
        operations = (Put(opened.state_key, data),)
        while opened.ended is None:
            try:
                result = await self._writes.write(Write(opened.compares.all(), operations))
                if result.succeeded:
                    _advance(opened, result.revision)
                    return ShareWriteResult.WRITTEN
                found: Mapping[str, KeyValue] = by_key(result.found)
            except StoreUnavailableError as problem:
                await self._pause(opened, problem)
                continue
            except StoreIndeterminateError as problem:
                await self._pause(opened, problem)
                read = await self._read_back(opened)
                if read is None:
                    break
                found = read
            verdict = opened.compares.verdict(found, data)
            if verdict is not None:
                outcome, revision = verdict
                _advance(opened, revision)
                return outcome
        return opened.ended or ShareWriteResult.FENCED

    async def _read_back(self, opened: OpenShareState) -> Mapping[str, KeyValue] | None:
        """The keys of the partition as they are now; None if it was abandoned meanwhile."""
        while opened.ended is None:
            try:
                return await self._reads.read(opened.compares.keys)
            except StoreError as problem:
                await self._pause(opened, problem)
        return None

    async def _pause(self, opened: OpenShareState, problem: StoreError) -> None:
        # Not a line for each of a thousand partitions.
        now_sec = asyncio.get_running_loop().time()
        if now_sec >= self._next_line_sec:
            self._next_line_sec = now_sec + _LINE_INTERVAL_SEC
            logger.warning(
                "could not write the states of share partitions, trying again",
                extra={"key": opened.state_key, "writing": len(self._tasks), "problem": str(problem)},
            )
        await asyncio.sleep(self._retry_delay_sec)


def _advance(opened: OpenShareState, revision: int) -> None:
    compares = opened.compares
    opened.compares = ShareCompares(Compare(compares.state.key, revision), compares.start, compares.leader)


def _revision(found: Mapping[str, KeyValue], key: str) -> int:
    item = found.get(key)
    return ABSENT if item is None else item.mod_revision


def _closed(opened: OpenShareState) -> StoreIndeterminateError:
    return StoreIndeterminateError(f"the writer of {opened.state_key} was closed")

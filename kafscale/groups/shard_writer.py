"""The writes of one group shard: one transaction after the other, each fenced, each with all that has gathered.

Every transaction compares the shard's record with what this coordinator wrote last and replaces it, so a
coordinator that was replaced, and an attempt of our own that arrives late, change nothing. What an attempt
did whose outcome is unknown is read from that record before anything else is written: writes take effect in
the order in which they were asked for, or not at all.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from kafscale.errors import CorruptDataError, StoreIndeterminateError, StoreUnavailableError
from kafscale.metadata import keys
from kafscale.metadata.coordination import ClaimedShard
from kafscale.metadata.model import GroupShardRecord
from kafscale.metadata.store import Compare, KeyValue, MetadataStore, Operation, Put
from kafscale.metadata.topic_record import decode_group_shard_record, encode_group_shard_record
from kafscale.protocol.error_codes import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

MAX_TRANSACTION_BYTES = 1024 * 1024
"""What keys and values of one transaction may add up to: etcd takes up to 1.5 MiB unless told otherwise."""

_OWN_OPERATIONS = 1


@dataclass(slots=True)
class _Write:
    """`operations` that are still to be sent; `done` once the last one took effect.

    `has_begun`: some of them were sent.
    """

    operations: deque[Operation]
    done: asyncio.Future[None] = field(repr=False)
    has_begun: bool = False

    @property
    def abandoned(self) -> bool:
        return self.done.done()


class WriteInDoubtError(KafkaError):
    """COORDINATOR_NOT_AVAILABLE for a write that was sent, at least in part, and may take effect yet."""


def fenced(shard: int) -> KafkaError:
    """The refusal by a broker that coordinates a shard no longer."""
    return KafkaError(ErrorCode.NOT_COORDINATOR, f"another broker coordinates the groups of shard {shard}")


class ShardWriter:
    """Writes for one shard, under one claim. Idle, it holds no task and no timer."""

    def __init__(
        self,
        store: MetadataStore,
        claimed: ClaimedShard,
        on_fenced: Callable[[], None],
        retry_delay_sec: float = 0.1,
    ) -> None:
        self._store = store
        self._shard = claimed.shard
        self._key = keys.group_shard(claimed.shard)
        self._record: GroupShardRecord = claimed.record
        self._revision = claimed.revision
        self._on_fenced = on_fenced
        self._retry_delay_sec = retry_delay_sec
        self._queue: deque[_Write] = deque()
        self._task: asyncio.Task[None] | None = None
        self._fenced = False

    async def write(self, operations: Sequence[Operation], timeout_sec: float) -> None:
        """Return once all of it is durable; with nothing to write, once everything before it is.

        Raises `KafkaError` NOT_COORDINATOR when this broker was replaced, COORDINATOR_NOT_AVAILABLE when the
        time is over: what was under way then may still take effect, in its order (`WriteInDoubtError` if
        there is any); the rest never will.
        """
        if self._fenced:
            raise fenced(self._shard)
        done = asyncio.get_running_loop().create_future()
        write = _Write(deque(operations), done)
        self._queue.append(write)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"group shard {self._shard}")
        try:
            async with asyncio.timeout(timeout_sec):
                await done
        except TimeoutError:
            refusal = WriteInDoubtError if write.has_begun else KafkaError
            raise refusal(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"the metadata store did not take the write within {timeout_sec:g} s",
            ) from None

    async def close(self) -> None:
        """Stop; what is under way may or may not take effect, and nobody is told that it did."""
        self._fenced = True
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._fail(self._queue)
        self._queue.clear()

    async def _run(self) -> None:
        try:
            while self._queue and not self._fenced:
                await self._write_batch()
        except CorruptDataError as problem:
            logger.error("a group shard cannot be used", extra={"problem": str(problem)})
            self._fence()
        except Exception:
            # A defect, after which nobody knows what the last attempt did: the next claim starts from the store.
            logger.exception("a group shard is given up", extra={"shard": self._shard})
            self._fence()
        finally:
            self._task = None

    async def _write_batch(self) -> None:
        batch, finished = self._next_batch()
        landed = False
        try:
            landed = not batch or await self._transact(batch)
        finally:
            if not landed:
                self._fail(finished)
        for write in finished:
            if not write.done.done():
                write.done.set_result(None)

    def _next_batch(self) -> tuple[list[Operation], list[_Write]]:
        """What goes next, and the writes that are done with it. Of two operations on a key the later one counts."""
        batch: dict[str, Operation] = {}
        finished: list[_Write] = []
        size_bytes = 0
        limit = self._store.max_operations - _OWN_OPERATIONS
        while self._queue:
            write = self._queue[0]
            while write.operations and not write.abandoned:
                operation = write.operations[0]
                size = len(operation.key) + (len(operation.value) if isinstance(operation, Put) else 0)
                full = len(batch) == limit and operation.key not in batch
                if full or (batch and size_bytes + size > MAX_TRANSACTION_BYTES):
                    return list(batch.values()), finished
                batch[operation.key] = write.operations.popleft()
                write.has_begun = True
                size_bytes += size
            finished.append(self._queue.popleft())
        return list(batch.values()), finished

    async def _transact(self, batch: Sequence[Operation]) -> bool:
        """Make the batch durable, however long it takes; False when this broker was replaced."""
        record = replace(self._record, sequence=self._record.sequence + 1)
        compares = [Compare(self._key, self._revision)]
        operations = [Put(self._key, encode_group_shard_record(record)), *batch]
        while True:
            try:
                result = await self._store.transact(compares, operations)
            except StoreUnavailableError as problem:
                self._log_retry(problem)
            except StoreIndeterminateError as problem:
                self._log_retry(problem)
                # It may have landed, or may land later. The same again is safe: only one of the two can.
                landed = await self._has_landed(record)
                if landed is not None:
                    return landed
            else:
                if result.succeeded:
                    self._accept(record, result.revision)
                    return True
                return self._judge(result.found[0], record)
            await asyncio.sleep(self._retry_delay_sec)

    async def _has_landed(self, record: GroupShardRecord) -> bool | None:
        """True: it has; False: never will, another broker coordinates; None: not yet."""
        while True:
            try:
                found = await self._store.get(self._key)
            except (StoreUnavailableError, StoreIndeterminateError) as problem:
                self._log_retry(problem)
                await asyncio.sleep(self._retry_delay_sec)
                continue
            if found is not None and found.mod_revision == self._revision:
                return None
            return self._judge(found, record)

    def _judge(self, found: KeyValue | None, record: GroupShardRecord) -> bool:
        """Whether the shard's record, which is not what we compared with, is the one of this very attempt."""
        if found is not None and decode_group_shard_record(found.key, found.value) == record:
            self._accept(record, found.mod_revision)
            return True
        logger.warning("another broker coordinates this group shard", extra={"shard": self._shard})
        self._fence()
        return False

    def _fence(self) -> None:
        self._fenced = True
        self._fail(self._queue)
        self._queue.clear()
        self._on_fenced()

    def _accept(self, record: GroupShardRecord, revision: int) -> None:
        self._record = record
        self._revision = revision

    def _fail(self, writes: Iterable[_Write]) -> None:
        for write in writes:
            if not write.done.done():
                write.done.set_exception(fenced(self._shard))

    def _log_retry(self, problem: Exception) -> None:
        logger.warning(
            "could not write to a group shard, trying again",
            extra={"shard": self._shard, "problem": str(problem)},
        )

"""The writes of one group shard: one transaction after the other, each fenced, each with all queued writes.

Every transaction compares the shard's record with the one that this coordinator wrote last, and replaces it, so
that a fenced coordinator, and an attempt of our own that arrives late, change nothing. The outcome of an
indeterminate attempt is read back from that record before anything else is written: writes take effect in the
order of the calls, or not at all.

A write may depend on its topics being those that the caller saw: the transaction compares their records, too. If
one is another topic now, that write fails, and the others of the transaction are sent again without it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from kafscale.cluster.coordination import ClaimedShard
from kafscale.errors import CorruptDataError, StoreIndeterminateError, StoreUnavailableError
from kafscale.formats.topic_record import decode_group_shard_record, encode_group_shard_record
from kafscale.groups.topic_condition import ConditionalPut, TopicCondition
from kafscale.metadata import keys
from kafscale.metadata.model import GroupShardRecord
from kafscale.metadata.store import Compare, KeyValue, MetadataStore, Operation, Put
from kafscale.protocol.error_codes import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

MAX_TRANSACTION_BYTES = 1024 * 1024
"""The limit of keys and values in one transaction: by default etcd accepts requests of up to 1.5 MiB."""

_OWN_OPERATIONS = 1


@dataclass(slots=True)
class _Write:
    """`operations` that are still to be sent; `done` once the last one has taken effect.

    `has_begun`: some of them were sent. `durable_count`: how many of them, from the first on, have taken effect.
    """

    operations: deque[Operation | ConditionalPut]
    done: asyncio.Future[int] = field(repr=False)
    has_begun: bool = False
    durable_count: int = 0

    @property
    def is_abandoned(self) -> bool:
        return self.done.done()


@dataclass(slots=True)
class _Batch:
    """The content of one transaction. `conditions`: by the key of the operation; `compared`: by their own.

    `parts`: the keys of each write in it. `finished`: the writes that it completes.
    """

    operations: dict[str, Operation] = field(default_factory=dict)
    conditions: dict[str, TopicCondition] = field(default_factory=dict)
    compared: dict[str, TopicCondition] = field(default_factory=dict)
    parts: list[tuple[_Write, list[str]]] = field(default_factory=list)
    finished: list[_Write] = field(default_factory=list)
    size_bytes: int = 0

    def accepts(self, operation: Operation, condition: TopicCondition | None) -> bool:
        """True if both can be part of it: of two operations on a key both take effect or neither does."""
        if operation.key in self.operations and (operation.key in self.conditions) != (condition is not None):
            return False
        return condition is None or condition.agrees_with(self.compared.get(condition.key, condition))

    def add(self, operation: Operation, condition: TopicCondition | None, size_bytes: int) -> None:
        """Add the operation; it replaces an earlier one on the same key."""
        self.operations[operation.key] = operation
        self.size_bytes += size_bytes
        if condition is not None:
            self.conditions[operation.key] = condition
            self.compared.setdefault(condition.key, condition)
        self.parts[-1][1].append(operation.key)

    def without(self, changed: Collection[str]) -> list[_Write]:
        """Remove the operations that depend on the changed keys; returns the writes that they are part of."""
        removed = {key for key, condition in self.conditions.items() if condition.key in changed}
        for key in removed:
            del self.operations[key], self.conditions[key]
        for key in changed:
            del self.compared[key]
        return [write for write, written in self.parts if not removed.isdisjoint(written)]


def _parts(operation: Operation | ConditionalPut) -> tuple[Operation, TopicCondition | None]:
    if isinstance(operation, ConditionalPut):
        return operation.put, operation.condition
    return operation, None


class WriteFailedError(KafkaError):
    """A write of which only the first `durable_count` operations took effect."""

    def __init__(self, code: ErrorCode, message: str, durable_count: int = 0) -> None:
        super().__init__(code, message)
        self.durable_count = durable_count


class WriteInDoubtError(WriteFailedError):
    """COORDINATOR_NOT_AVAILABLE for an indeterminate write: it was sent, at least in part."""


class ConditionChangedError(WriteFailedError):
    """COORDINATOR_NOT_AVAILABLE: a topic that the write depends on has changed; no more of it is written."""


def fenced(shard: int, durable_count: int = 0) -> KafkaError:
    """The error of a broker that no longer coordinates a shard."""
    message = f"another broker coordinates the groups of shard {shard}"
    return WriteFailedError(ErrorCode.NOT_COORDINATOR, message, durable_count)


class ShardWriter:
    """Writes for one shard, under one claim. While it is idle it has no task and no timer."""

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

    async def write(self, operations: Sequence[Operation | ConditionalPut], timeout_sec: float | None) -> int:
        """Return once all operations are durable; without operations, once all earlier writes are.

        Returns the store's revision of the last operation, or a later one without operations.

        Raises `WriteFailedError` NOT_COORDINATOR if this broker is fenced, COORDINATOR_NOT_AVAILABLE after
        `timeout_sec` (None: never): operations in flight may still take effect, in their order (`WriteInDoubtError`
        if there are any); the others never will. `ConditionChangedError`: a condition is not met any more.
        """
        if self._fenced:
            raise fenced(self._shard)
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        write = _Write(deque(operations), done)
        self._queue.append(write)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"group shard {self._shard}")
        try:
            async with asyncio.timeout(timeout_sec):
                return await done
        except TimeoutError:
            refusal = WriteInDoubtError if write.has_begun else WriteFailedError
            raise refusal(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"the metadata store did not take the write within {timeout_sec:g} s",
                write.durable_count,
            ) from None

    async def close(self) -> None:
        """Stop; writes in flight may or may not take effect, and fail with NOT_COORDINATOR."""
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
            # A defect, after which the outcome of the last attempt is unknown: the next claim starts from the store.
            logger.exception("resigning a group shard", extra={"shard": self._shard})
            self._fence()
        finally:
            self._task = None

    async def _write_batch(self) -> None:
        batch = self._next_batch()
        is_durable = False
        try:
            is_durable = not batch.operations or await self._transact(batch)
        finally:
            if not is_durable:
                self._fail(batch.finished)
        for write, written in batch.parts:
            write.durable_count += len(written)
        for write in batch.finished:
            if not write.done.done():
                write.done.set_result(self._revision)

    def _next_batch(self) -> _Batch:
        """Take as many operations from the queue as fit into one transaction."""
        batch = _Batch()
        limit = self._store.max_operations - _OWN_OPERATIONS
        while self._queue:
            write = self._queue[0]
            batch.parts.append((write, []))
            while write.operations and not write.is_abandoned:
                operation, condition = _parts(write.operations[0])
                size = len(operation.key) + (len(operation.value) if isinstance(operation, Put) else 0)
                full = len(batch.operations) == limit and operation.key not in batch.operations
                too_large = batch.operations and batch.size_bytes + size > MAX_TRANSACTION_BYTES
                if full or too_large or not batch.accepts(operation, condition):
                    return batch
                batch.add(operation, condition, size)
                write.operations.popleft()
                write.has_begun = True
            batch.finished.append(self._queue.popleft())
        return batch

    async def _transact(self, batch: _Batch) -> bool:
        """Make the batch durable, however long it takes; False if this broker is fenced."""
        record = replace(self._record, sequence=self._record.sequence + 1)
        own = Put(self._key, encode_group_shard_record(record))
        while True:
            compares = [Compare(self._key, self._revision), *(one.compare for one in batch.compared.values())]
            operations = [own, *batch.operations.values()]
            try:
                result = await self._store.transact(compares, operations)
            except StoreUnavailableError as problem:
                self._log_retry(problem)
            except StoreIndeterminateError as problem:
                self._log_retry(problem)
                # It may have taken effect, or may do so later. A retry is safe: only one of the two can.
                outcome = await self._read_back(record)
                if outcome is not None:
                    return outcome
            else:
                if result.succeeded:
                    self._accept(record, result.revision)
                    return True
                found = result.found[0]
                if found is None or found.mod_revision != self._revision:
                    return self._resolve_outcome(found, record)
                # An earlier attempt of the same, still in flight, fails by that, too: no revision comes back.
                self._update_conditions(batch, result.found[1:])
                if not batch.operations:
                    return True
                continue
            await asyncio.sleep(self._retry_delay_sec)

    def _update_conditions(self, batch: _Batch, found: Sequence[KeyValue | None]) -> None:
        """Continue with the topics as they were found, and fail the writes that were meant for others."""
        changed = set()
        for condition, item in zip(tuple(batch.compared.values()), found, strict=True):
            now = condition.now(item)
            if now is None:
                changed.add(condition.key)
            else:
                batch.compared[condition.key] = now
        for write in batch.without(changed):
            if not write.done.done():
                message = "a topic was created again while its offsets were written"
                problem = ErrorCode.COORDINATOR_NOT_AVAILABLE
                write.done.set_exception(ConditionChangedError(problem, message, write.durable_count))

    async def _read_back(self, record: GroupShardRecord) -> bool | None:
        """True: the attempt took effect; False: it never will, another broker coordinates; None: not yet."""
        while True:
            try:
                found = await self._store.get(self._key)
            except (StoreUnavailableError, StoreIndeterminateError) as problem:
                self._log_retry(problem)
                await asyncio.sleep(self._retry_delay_sec)
                continue
            if found is not None and found.mod_revision == self._revision:
                return None
            return self._resolve_outcome(found, record)

    def _resolve_outcome(self, found: KeyValue | None, record: GroupShardRecord) -> bool:
        """True if the shard's record, which is not the one that we compared with, is that of this attempt."""
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
                write.done.set_exception(fenced(self._shard, write.durable_count))

    def _log_retry(self, problem: Exception) -> None:
        logger.warning(
            "could not write to a group shard, trying again",
            extra={"shard": self._shard, "problem": str(problem)},
        )

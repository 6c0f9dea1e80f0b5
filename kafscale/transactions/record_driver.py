"""Carries out decisions on transactional ids: reads, decides, stores under a compare, and decides again.

A store that does not say whether it stored is asked again with the same write: only one of the two can take effect,
and the record then shows it. A refusal, or an answer without a write, rests on a record that was read for it, never
on one that a coordinator remembers.
"""

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import Final, Protocol

from kafscale.errors import CorruptDataError, StoreError, StoreIndeterminateError
from kafscale.formats.transaction_record import (
    TransactionRecord,
    decode_transaction_record,
    encode_transaction_record,
)
from kafscale.metadata import keys
from kafscale.metadata.shared_writes import SharedWrites
from kafscale.metadata.store import ABSENT, Compare, Delete, KeyValue, MetadataStore, Operation, Put
from kafscale.metadata.write_batch import MAX_TRANSACTION_BYTES, Write, request_bytes
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.transactions.decisions import Ignore, NeedProducerId, Refuse, Remove, Reply, Store
from kafscale.transactions.events import End, Event, InitProducer, TimePassed
from kafscale.transactions.machine import decide
from kafscale.transactions.markers import PREPARING, marker_puts
from kafscale.transactions.shard_owner import ShardOwner

logger = logging.getLogger(__name__)

DEADLINE_SEC: Final = 8.0
"""Less than the least patient client waits for an answer."""

NO_COORDINATOR_EPOCH: Final = -1
"""Of a write that decides nothing."""


class NewProducerIds(Protocol):
    """The source of producer ids."""

    async def next_producer_id(self) -> int:
        """An id that no producer had before. Raises `StoreError`."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A transactional id's record as it is in the store; None and `ABSENT` without one."""

    record: TransactionRecord | None
    mod_revision: int


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of an event, and the record after it. `was_stored`: this event changed it."""

    result: Refuse | Reply | Remove | Ignore
    after: StoredRecord
    was_stored: bool


class RecordDriver:
    """Applies events to transactional ids, on any broker."""

    def __init__(
        self,
        store: MetadataStore,
        writes: SharedWrites,
        producer_ids: NewProducerIds,
        *,
        retry_delay_sec: float = 0.1,
    ) -> None:
        self._store = store
        self._writes = writes
        self._producer_ids = producer_ids
        self._retry_delay_sec = retry_delay_sec

    async def apply(
        self,
        transactional_id: str,
        event: Event,
        known: StoredRecord | None = None,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        owner: ShardOwner | None = None,
        *,
        only_to_known: bool = False,
    ) -> Applied:
        """Apply the event, beginning with the record that is `known`, if one is.

        `owner`: of the shard, where only its coordinator may write. `only_to_known`: the event is about that record
        and about no later one, as the end of its markers is: if the store has another, nothing is done.

        Raises `KafkaError` NOT_COORDINATOR if another broker owns the shard, COORDINATOR_NOT_AVAILABLE if the store
        does not answer in time, or the record cannot be read: the event may or may not have taken effect.
        """
        try:
            async with asyncio.timeout(DEADLINE_SEC):
                if only_to_known and known is not None:
                    return await self._apply_to(transactional_id, event, known, coordinator_epoch)
                return await self._apply(transactional_id, event, known, coordinator_epoch, owner)
        except TimeoutError:
            problem: Exception = StoreError(f"no answer within {DEADLINE_SEC:g} s")
        except (StoreError, CorruptDataError) as raised:
            problem = raised
        logger.warning(
            "a transactional id cannot be used",
            extra={"transactional_id": quoted(transactional_id), "problem": quoted(str(problem), 500)},
        )
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(problem)) from problem

    async def _apply_to(
        self, transactional_id: str, event: Event, known: StoredRecord, coordinator_epoch: int
    ) -> Applied:
        key = keys.transaction(transactional_id)
        decision = decide(known.record, event)
        if not isinstance(decision, Store):
            return Applied(Ignore(), known, was_stored=False)
        record, operations = self._operations(transactional_id, decision.record, coordinator_epoch)
        written = await self._write(key, known.mod_revision, operations, None)
        if isinstance(written, int):
            return Applied(decision.then, StoredRecord(record, written), was_stored=True)
        return Applied(Ignore(), _stored(key, written), was_stored=False)

    async def _apply(
        self,
        transactional_id: str,
        event: Event,
        known: StoredRecord | None,
        coordinator_epoch: int,
        owner: ShardOwner | None,
    ) -> Applied:
        key = keys.transaction(transactional_id)
        is_fresh = known is None
        current = _stored(key, await self._store.get(key)) if known is None else known
        while True:
            decision = decide(current.record, event)
            match decision:
                case NeedProducerId():
                    assert isinstance(event, InitProducer | End | TimePassed)
                    event = replace(event, new_producer_id=await self._producer_ids.next_producer_id())
                case Store(record, then):
                    record, operations = self._operations(transactional_id, record, coordinator_epoch)
                    written = await self._write(key, current.mod_revision, operations, owner)
                    if isinstance(written, int):
                        return Applied(then, StoredRecord(record, written), was_stored=True)
                    current, is_fresh = _stored(key, written), True
                case Remove():
                    written = await self._write(key, current.mod_revision, (Delete(key),), owner)
                    if isinstance(written, int) or written is None:
                        return Applied(decision, StoredRecord(None, ABSENT), was_stored=True)
                    current, is_fresh = _stored(key, written), True
                case _ if is_fresh:
                    return Applied(decision, current, was_stored=False)
                case _:
                    current, is_fresh = _stored(key, await self._store.get(key)), True

    def _operations(
        self, transactional_id: str, record: TransactionRecord, coordinator_epoch: int
    ) -> tuple[TransactionRecord, tuple[Operation, ...]]:
        """The put of the record, with the puts of its markers, if all of that fits into one transaction.

        If not, the record says so, and its coordinator puts them next.
        """
        key = keys.transaction(transactional_id)
        if record.state in PREPARING and not record.markers_stored:
            complete = replace(record, markers_stored=True)
            puts = (
                Put(key, encode_transaction_record(complete)),
                *marker_puts(transactional_id, complete, coordinator_epoch),
            )
            if len(puts) <= self._writes.max_operations and request_bytes(puts) <= MAX_TRANSACTION_BYTES:
                return complete, puts
        return record, (Put(key, encode_transaction_record(record)),)

    async def _write(
        self, key: str, mod_revision: int, operations: tuple[Operation, ...], owner: ShardOwner | None
    ) -> int | KeyValue | None:
        """The revision at which it was stored, or, if the record is another one now, that one.

        Raises `KafkaError` NOT_COORDINATOR.
        """
        wanted = next((one.value for one in operations if isinstance(one, Put) and one.key == key), None)
        compare = Compare(key, mod_revision)
        is_repeated = False
        while True:
            try:
                compares = (compare,) if owner is None else (compare, owner.compare)
                result = await self._writes.write(Write(compares, operations))
            except StoreIndeterminateError as problem:
                logger.warning("a write has an unknown outcome, asking again: %s", problem)
                is_repeated = True
                await asyncio.sleep(self._retry_delay_sec)
                continue
            if result.succeeded:
                return result.revision
            found = result.found[0]
            if is_repeated and found is not None and found.value == wanted:
                return found.mod_revision
            if owner is not None and not owner.found(result.found[1]):
                raise KafkaError(
                    ErrorCode.NOT_COORDINATOR, "another broker coordinates this transactional id"
                )
            is_changed = (ABSENT if found is None else found.mod_revision) != mod_revision
            if is_repeated and is_changed:
                # It may have been stored, and more after it: another decision now could be about a later transaction.
                raise StoreIndeterminateError(
                    "a write has an unknown outcome, and the record is another one now"
                )
            if owner is None or is_changed:
                return found


def _stored(key: str, found: KeyValue | None) -> StoredRecord:
    if found is None:
        return StoredRecord(None, ABSENT)
    return StoredRecord(decode_transaction_record(key, found.value), found.mod_revision)

"""Looks for open transactions that nothing will end, which `kafka-transactions.sh find-hanging` calls hanging.

A transaction is ended by the coordinator of its transactional id, at the latest when it times out. So one that is
open in a partition, and was not written to for longer than the longest time-out, needs a transactional id that is
about to end it, or a marker that waits for the partition's leader.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kafscale.errors import CorruptDataError
from kafscale.formats.partition_transactions import OpenTransaction
from kafscale.formats.transaction_record import (
    TransactionRecord,
    TransactionState,
    decode_transaction_record,
)
from kafscale.metadata import keys
from kafscale.ops.report_text import time_text
from kafscale.tools.fsck.findings import Finding, FindingKind, OpenSince, PartitionReport
from kafscale.tools.fsck.partition_state import read_partition
from kafscale.tools.fsck.reading import Reading

LONGEST_MS: Final = 900_000
"""Kafka's default of transaction.max.timeout.ms."""

_GRACE_MS: Final = 5 * 60_000
_ENDING: Final = frozenset(
    (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
)


class TransactionCheck:
    """`longest_ms`: the longest time-out that a broker allows. `now_ms`: Unix milliseconds."""

    def __init__(self, reading: Reading, now_ms: Callable[[], int], longest_ms: int = LONGEST_MS) -> None:
        self._reading = reading
        self._before_ms = now_ms() - longest_ms - _GRACE_MS

    async def check(self, partitions: Iterable[PartitionReport]) -> list[Finding]:
        """The hanging transactions of these partitions, each looked at twice. Raises `StoreError`."""
        suspects = [
            (partition, one)
            for partition in partitions
            for one in partition.opened
            if one.last_write_ms < self._before_ms
        ]
        if not suspects:
            return []
        wanted = {one.transaction.producer_id for _, one in suspects}
        ongoing, findings = await self._ongoing(wanted)
        for partition, one in suspects:
            record = ongoing.get(one.transaction.producer_id)
            if record is not None and (partition.topic, partition.partition) in record.partitions():
                continue
            finding = await self._finding(partition, one)
            if finding is not None:
                findings.append(finding)
        return findings

    async def _ongoing(self, wanted: set[int]) -> tuple[Mapping[int, TransactionRecord], list[Finding]]:
        """The records with a transaction of these producers; one shard's records are in memory at a time."""
        found: dict[int, TransactionRecord] = {}
        findings = []
        for shard in range(keys.GROUP_SHARD_COUNT):
            for item in (await self._reading.range(keys.transactions(shard))).items:
                try:
                    record = decode_transaction_record(item.key, item.value)
                except CorruptDataError as problem:
                    findings.append(
                        Finding(
                            kind=FindingKind.TRANSACTION_UNREADABLE,
                            subject=item.key,
                            detail=problem.problem,
                        )
                    )
                    continue
                if record.producer_id in wanted and record.state in _ENDING:
                    found[record.producer_id] = record
        return found, findings

    async def _finding(self, partition: PartitionReport, one: OpenSince) -> Finding | None:
        """None if a marker waits, or the transaction has ended since it was read."""
        open_one = one.transaction
        key = keys.partition_marker(partition.topic, partition.partition, open_one.producer_id)
        (marker,) = await self._reading.read_metadata(key)
        if marker is not None or not await self._is_still_open(partition, open_one):
            return None
        since = "at a time that is not known" if one.last_write_ms < 0 else time_text(one.last_write_ms)
        return Finding(
            kind=FindingKind.TRANSACTION_HANGING,
            subject=partition.name,
            detail=(
                f"of producer {open_one.producer_id}, epoch {open_one.producer_epoch}, which wrote last {since}: "
                f"kafka-transactions.sh abort --topic {partition.topic} --partition {partition.partition} "
                f"--start-offset {open_one.first_offset} ends it"
            ),
            first_offset=open_one.first_offset,
            last_offset=partition.log_end_offset - 1,
        )

    async def _is_still_open(self, partition: PartitionReport, one: OpenTransaction) -> bool:
        state = await read_partition(self._reading, partition.topic, partition.partition)
        return state.record is not None and one in state.record.transactions.open

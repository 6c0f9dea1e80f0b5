"""A partition's transactions as its record and checkpoint have them: which are open, and what is wrong. Pure."""

from collections.abc import Sequence

from kafscale.formats.checkpoint import Checkpoint
from kafscale.formats.partition_record import PartitionRecord
from kafscale.tools.fsck.findings import OpenSince


def open_transactions(record: PartitionRecord, checkpoint: Checkpoint | None) -> tuple[OpenSince, ...]:
    """The open transactions of a partition, and when their producers wrote last."""
    if not record.transactions.open:
        return ()
    producers = (*(() if checkpoint is None else checkpoint.producers), *record.producers)
    written_ms = {one.producer_id: one.last_timestamp_ms for one in producers}
    return tuple(
        OpenSince(transaction=one, last_write_ms=written_ms.get(one.producer_id, -1))
        for one in record.transactions.open
    )


def transaction_problems(record: PartitionRecord) -> Sequence[str]:
    """In what a record's transactions contradict it or each other."""
    transactions, end = record.transactions, record.log_end_offset
    problems = [
        f"a transaction of producer {one.producer_id} is open from offset {one.first_offset} on; "
        f"the log ends at {end}"
        for one in transactions.open
        if not 0 <= one.first_offset < end
    ]
    problems += [
        f"a transaction of producer {one.producer_id} was aborted from offset {one.first_offset} to "
        f"{one.last_offset}; the log ends at {end}"
        for one in transactions.aborted
        if not 0 <= one.first_offset < one.last_offset < end
    ]
    firsts = [one.first_offset for one in transactions.open]
    lasts = [one.last_offset for one in transactions.aborted]
    if firsts != sorted(firsts) or lasts != sorted(lasts):
        problems.append("its transactions are not in order")
    if len({one.producer_id for one in transactions.open}) != len(firsts):
        problems.append("two transactions of one producer are open")
    if transactions.aborted_from > end:
        problems.append(
            f"aborted transactions below {transactions.aborted_from} are in the checkpoint; the log ends at {end}"
        )
    return problems

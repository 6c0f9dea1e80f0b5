"""The end of a run with transactions: nothing hangs, and what readers find is what was committed."""

from collections.abc import Iterator

from kafscale.formats.committed_offset import decode_committed_offset
from kafscale.formats.transaction_record import TransactionState, decode_transaction_record
from kafscale.metadata import keys
from kafscale.protocol.record_batch import BatchHeader
from kafscale.protocol.records import decode_records
from tests.formats.segments import parse_segment, verify_segment
from tests.sim.broker_cluster import SimulatedCluster
from tests.sim.published_log import PublishedLog
from tests.sim.transaction_frames import is_abort
from tests.support.ledger import Record
from tests.support.transaction_checker import examine_transactions

AT_REST = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
WAITING = (keys.PARTITION_MARKERS, keys.GROUP_MARKERS, keys.PENDING_OFFSETS)


def unsettled_transactions(cluster: SimulatedCluster) -> list[str]:
    """The reasons why transactions are not at rest yet. Nothing new begins once every job is done."""
    if not cluster.jobs:
        return []
    reasons = [
        f"{job.name} has {job.unfinished} transactions to go" for job in cluster.jobs if job.unfinished
    ]
    for item in cluster.metadata.everything(keys.TRANSACTIONS).items:
        record = decode_transaction_record(item.key, item.value)
        if record.state not in AT_REST:
            reasons.append(f"{item.key} is {record.state.name}")
    for prefix in WAITING:
        reasons += [f"{item.key} is there" for item in cluster.metadata.everything(prefix).items]
    reasons += [
        f"{consumer.name} is at {consumer.position}, the end is {consumer.log.end_offset}"
        for consumer in cluster.committed_consumers
        if consumer.position < consumer.log.end_offset
    ]
    return reasons


def batches_of(log: PublishedLog) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The log's batches as they were published, or as what was merged of them."""
    for reference in sorted(log.bodies, key=lambda one: one.base_offset):
        segment = parse_segment(str(log), log.bodies[reference])
        for position, header in verify_segment(segment):
            yield header, memoryview(segment.data)[position : position + header.size_bytes]


def committed_records(log: PublishedLog, left: list[str]) -> list[Record]:
    """The records whose transactions were committed, in order. What is open is added to `left`."""
    opened: dict[int, list[tuple[int, bytes]]] = {}
    found: list[Record] = []
    for header, batch in batches_of(log):
        if header.is_control:
            records = opened.pop(header.producer_id, [])
            found += [] if is_abort(batch) else records
        elif header.is_transactional:
            records = opened.setdefault(header.producer_id, [])
            records += [(one.offset, one.value or b"") for one in decode_records(batch, 1 << 20)]
    left += [f"{log}: producer {producer_id} has an open transaction" for producer_id in opened]
    return sorted(found, key=lambda one: one[0])


def judge_transactions(cluster: SimulatedCluster) -> None:
    """Transactions are there as a whole or not at all, and every input was processed once."""
    if not cluster.jobs:
        return
    left: list[str] = []
    final = {
        consumer.log.place: committed_records(consumer.log, left) for consumer in cluster.committed_consumers
    }
    for one in left:
        cluster.fail(one)
    inputs, positions = {}, {}
    for job in cluster.jobs:
        inputs[job.place] = list(job.source.records())
        stored = cluster.metadata.now(keys.group_offset(job.name, job.source.name, job.source.index))
        if stored is not None:
            positions[job.place] = decode_committed_offset(stored.key, stored.value).offset
    report = examine_transactions(cluster.transactions.evidence(final, inputs, positions))
    if report.anomalies:
        cluster.fail(report.table())

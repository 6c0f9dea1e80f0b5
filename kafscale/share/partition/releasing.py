"""Records that their member gives back without a word of each: its lock or its share session has ended."""

from kafscale.share.partition.runs import RecordState, Run, records_of
from kafscale.share.partition.share_partition import SharePartition, advance, available_again


def end_locks(partition: SharePartition, now_ms: int) -> None:
    """Take back what was acquired for too long."""
    late = [
        run for run in partition.runs if run.state is RecordState.ACQUIRED and run.locked_until_ms <= now_ms
    ]
    partition.counts.timed_out += records_of(late)
    _give_back(partition, [available_again(run, partition) for run in late])


def release_member(partition: SharePartition, member_id: str) -> None:
    """Take back all that the member has: its share session was closed, or its connection has ended.

    The delivery counts, as in Kafka: a record that kills its consumer must reach the delivery limit.
    """
    own = [run for run in partition.runs if run.state is RecordState.ACQUIRED and run.member_id == member_id]
    partition.counts.released += records_of(own)
    _give_back(partition, [available_again(run, partition) for run in own])


def _give_back(partition: SharePartition, runs: list[Run]) -> None:
    if runs:
        partition.runs.replace(runs)
        partition.version += 1
        advance(partition)

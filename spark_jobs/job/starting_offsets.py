"""Where the export of a topic begins that has none yet. Pure."""

from collections.abc import Mapping
from enum import StrEnum

from kafscale.errors import SettingError
from spark_jobs.source.topic_state import TopicLog


class Start(StrEnum):
    """Kafka's words for the two ends of a log."""

    EARLIEST = "earliest"
    LATEST = "latest"


def resolve_starts(log: TopicLog, start: Start | Mapping[int, int]) -> dict[int, int]:
    """The first offset to export of each partition; -1 stands for the log's end and -2 for its beginning.

    A partition that a mapping leaves out begins with its log. Raises `SettingError`.
    """
    resolved = {}
    for partition in log.partitions:
        wanted = -1 if start is Start.LATEST else -2
        if not isinstance(start, Start):
            wanted = start.get(partition.partition, -2)
        if wanted == -2:
            wanted = partition.log_start_offset
        elif wanted == -1:
            wanted = partition.log_end_offset
        elif not 0 <= wanted <= partition.log_end_offset:
            raise SettingError(
                f"--starting-offsets {wanted} of {log.topic}-{partition.partition} is not legal: it must be at most "
                f"the log's end, {partition.log_end_offset}, or -1 (latest) or -2 (earliest)"
            )
        resolved[partition.partition] = wanted
    if not isinstance(start, Start):
        unknown = sorted(set(start) - set(resolved))
        if unknown:
            raise SettingError(
                f"--starting-offsets names partition {unknown[0]}, which {log.topic!r} does not have"
            )
    return resolved

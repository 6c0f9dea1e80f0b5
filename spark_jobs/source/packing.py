"""Puts small splits together into tasks: a task writes a file, and a hundred partitions need no hundred. Pure."""

from collections.abc import Iterable

from kafscale.reader.shared_splits import AnySplit
from kafscale.reader.splits import REQUEST_BYTES


def packed(
    splits: Iterable[AnySplit], task_bytes: int | None, least_tasks: int | None
) -> list[tuple[AnySplit, ...]]:
    """The splits of each task, in their order, which together have about `task_bytes` at most; a request counts, too.

    Neighbours stay together, so a partition's offsets ascend. `task_bytes`: None to leave each split alone.
    `least_tasks`: about how many there should be at least.
    """
    wanted = list(splits)
    if task_bytes is None:
        return [(one,) for one in wanted]
    if least_tasks is not None:
        task_bytes = min(task_bytes, sum(map(_cost_bytes, wanted)) // least_tasks)
    tasks: list[list[AnySplit]] = []
    room_bytes = 0
    for split in wanted:
        cost_bytes = _cost_bytes(split)
        if not tasks or cost_bytes > room_bytes:
            tasks.append([])
            room_bytes = task_bytes
        tasks[-1].append(split)
        room_bytes -= cost_bytes
    return [tuple(task) for task in tasks]


def _cost_bytes(split: AnySplit) -> int:
    return max(split.size_bytes, REQUEST_BYTES)

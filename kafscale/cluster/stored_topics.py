"""The topics as the metadata store has them now, for what a view of them that lags behind must not decide."""

import asyncio
from collections.abc import Iterable, Mapping

from kafscale.errors import StoreError
from kafscale.metadata import keys
from kafscale.metadata.store import KeyValue, MetadataStore, read_many

_READS_AT_ONCE = 4


async def stored_topics(store: MetadataStore, names: Iterable[str]) -> Mapping[str, KeyValue]:
    """The record of each of these topics, as stored; absent topics are skipped.

    One read for each `max_operations` names. Raises as `MetadataStore.get`.
    """
    wanted = list(dict.fromkeys(names))
    at_once = asyncio.Semaphore(_READS_AT_ONCE)

    async def read(part: list[str]) -> dict[str, KeyValue]:
        async with at_once:
            found = await read_many(store, [keys.topic(name) for name in part])
        return {name: item for name in part if (item := found.get(keys.topic(name))) is not None}

    size = store.max_operations
    parts = [wanted[start : start + size] for start in range(0, len(wanted), size)]
    if len(parts) == 1:
        return await read(parts[0])
    try:
        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(read(part), name="read topics") for part in parts]
    except* StoreError as problems:
        raise _first(problems) from problems
    return {name: item for one in reading for name, item in one.result().items()}


def _first(problems: BaseExceptionGroup[StoreError]) -> StoreError:
    """All of them say the same: the store is away."""
    problem = problems.exceptions[0]
    return _first(problem) if isinstance(problem, BaseExceptionGroup) else problem

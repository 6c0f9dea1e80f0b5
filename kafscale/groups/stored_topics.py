"""The topics as the metadata store has them now, for what a view of them that lags behind must not decide."""

import asyncio
from collections.abc import Iterable, Mapping

from kafscale.errors import StoreError
from kafscale.metadata import keys
from kafscale.metadata.read_many import read_many
from kafscale.metadata.store import KeyValue, MetadataStore
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted

_READS_AT_ONCE = 4


async def stored_topics(store: MetadataStore, names: Iterable[str]) -> Mapping[str, KeyValue]:
    """The record of each of these topics, as stored; a topic that is not there is left out.

    Raises `KafkaError` COORDINATOR_NOT_AVAILABLE when the store is away.
    """
    wanted = list(dict.fromkeys(names))
    at_once = asyncio.Semaphore(_READS_AT_ONCE)

    async def read(part: list[str]) -> dict[str, KeyValue]:
        async with at_once:
            held = await read_many(store, [keys.topic(name) for name in part])
        return {name: item for name in part if (item := held.get(keys.topic(name))) is not None}

    size = store.max_operations
    parts = [wanted[start : start + size] for start in range(0, len(wanted), size)]
    try:
        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(read(part), name="read topics") for part in parts]
    except* StoreError as problems:
        problem = problems.exceptions[0]
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, quoted(str(problem), 500)) from problem
    return {name: item for one in reading for name, item in one.result().items()}

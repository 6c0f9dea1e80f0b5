"""A process that writes until it is killed and says on its standard output what was acknowledged."""

import asyncio
import os
import sys
from pathlib import Path

from kafscale.metadata.sqlite.store import SqliteStore
from kafscale.metadata.store import ABSENT, Compare, Put

WRITERS = 16
PADDING = bytes(2000)


def encode(count: int) -> bytes:
    """The value of a writer's two keys after `count` transactions."""
    return b"%d " % count + PADDING


def decode(value: bytes) -> int:
    """The inverse of `encode`."""
    count, padding = value.split(b" ", 1)
    assert padding == PADDING
    return int(count)


async def write(store: SqliteStore, writer: int) -> None:
    """Count up in two keys at once, without end; print each count once it is acknowledged."""
    item = await store.get(f"a/{writer}")
    count, revision = (decode(item.value), item.mod_revision) if item else (0, ABSENT)
    while True:
        count += 1
        result = await store.transact(
            [Compare(f"a/{writer}", revision), Compare(f"b/{writer}", revision)],
            [Put(f"a/{writer}", encode(count)), Put(f"b/{writer}", encode(count))],
        )
        assert result.succeeded
        revision = result.revision
        # One write(2), so that no kill leaves half a line.
        os.write(1, b"%d %d\n" % (writer, count))


async def main(path: Path) -> None:
    """Run all writers."""
    store = await SqliteStore.open(path)
    async with asyncio.TaskGroup() as tasks:
        for writer in range(WRITERS):
            tasks.create_task(write(store, writer))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

"""`kill -9` in the middle of a write load loses no acknowledged transaction and tears none."""

import asyncio
import sys
from pathlib import Path

from kafscale.metadata.sqlite.store import SqliteStore
from tests.metadata.write_load import WRITERS, decode

KILLS = 4
# Enough for a checkpoint of the log in the middle of a round: 33 pages a group.
ACKNOWLEDGED_BEFORE_KILL = 2000


async def run_and_kill(path: Path) -> dict[int, int]:
    """Start the load, kill it in full run, and return each writer's last acknowledged count."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.metadata.write_load", path, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    acknowledged: dict[int, int] = {}
    lines = 0
    async for line in process.stdout:
        writer, count = line.split()
        acknowledged[int(writer)] = int(count)
        lines += 1
        if lines == ACKNOWLEDGED_BEFORE_KILL:
            process.kill()
    await process.wait()
    assert lines >= ACKNOWLEDGED_BEFORE_KILL, "the load ended by itself"
    return acknowledged


async def test_no_acknowledged_transaction_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    revision = 0
    for _ in range(KILLS):
        acknowledged = await run_and_kill(path)
        store = await SqliteStore.open(path)
        found = await store.range("")
        await store.close()
        assert found.revision > revision
        revision = found.revision
        items = {item.key: item for item in found.items}
        assert set(acknowledged) == set(range(WRITERS))
        for writer, count in acknowledged.items():
            first, second = items[f"a/{writer}"], items[f"b/{writer}"]
            # One more may have been durable and not yet said so.
            assert decode(first.value) in (count, count + 1)
            assert (first.value, first.mod_revision) == (second.value, second.mod_revision)

"""The read benchmark runs as documented, and its slow store is as slow as it says."""

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.reads import main
from bench.slow_broker import slow_store


async def test_every_get_of_the_slow_store_waits(tmp_path: Path) -> None:
    store = slow_store(0.05, 2)(tmp_path, fsync=False)
    try:
        began = time.perf_counter()
        await store.put_if_absent("n/a", [b"content"])
        wrote = time.perf_counter()
        assert await store.get("n/a") == b"content"
        assert await store.get_range("n/a", 1, 3) == b"ont"
        assert await store.size_bytes("n/a") == 7
        room = bytearray(4)
        assert await store.read_into("n/a", 0, 4, [memoryview(room)]) == 4
        assert room == b"cont"
        assert time.perf_counter() - wrote >= 0.2
        assert wrote - began < 0.2
    finally:
        await store.close()


@pytest.mark.nightly
def test_it_measures_every_kind_of_read(tmp_path: Path) -> None:
    arguments = [
        "--slices", "4", "--records", "3", "--size", "100", "--get-ms", "1", "--consumers", "2",
        "--tail-records", "3", "--warm-passes", "1", "--repeat", "1", "--work-dir", str(tmp_path),
        "--json", str(tmp_path / "reads.json"),
    ]  # fmt: skip
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    measured = {
        (row["workload"], row["metric"]): row["value"]
        for row in json.loads((tmp_path / "reads.json").read_text())["measurements"]
    }
    assert measured["one GET at a time", "ms per slice"] >= 1
    assert measured["many GETs at a time", "s"] > 0
    for cold in ("cold, 1 consumer", "cold, 2 consumers at once"):
        assert measured[cold, "GETs per slice"] > 0
        assert measured[cold, "Fetch requests"] >= 1
    assert measured["warm, from the beginning", "MB/s"] > 0
    assert measured["warm, at the tail", "GETs"] == 0
    assert "times as fast as one at a time" in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reads.json"]

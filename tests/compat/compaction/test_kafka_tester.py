"""Kafka's own test of compaction, `kafka.tools.LogCompactionTester`."""

import re
import subprocess

import pytest

from tests.compat import tools
from tests.compat.compaction.java_programs import java_with_more
from tests.compat.conftest import Peer
from tests.support.waiting import PATIENCE_SEC


@pytest.mark.nightly
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_last_value_of_each_key_is_consumed(compacting: Peer, codec: str) -> None:
    reason = tools.compaction_jars_missing()
    if reason:
        pytest.skip(reason)
    command = java_with_more(
        "kafka.tools.LogCompactionTester",
        "--bootstrap-server", compacting.bootstrap,
        "--messages", "200000",
        "--duplicates", "20",
        "--percent-deletes", "15",
        "--topics", "2",
        "--compression-type", codec,
        "--sleep", "15",
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE_SEC, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Data verification is completed" in done.stdout, done.stdout
    print(done.stdout)
    found = re.search(r"(\d+) rows of data produced, (\d+) rows of data consumed", done.stdout)
    assert found is not None
    produced, consumed = map(int, found.groups())
    assert produced == 400_000
    assert consumed < produced / 2

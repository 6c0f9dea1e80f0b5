"""The counts of the lake benchmark, and its stand-in for a data source that costs nothing."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from bench.lake import main
from bench.lake_prepared import PreparedReader
from bench.process import process_cpu, process_tree_cpu_with_ended
from kafscale.arrow.columns import arrow_schema

_BUSY = "import time\nwhile time.process_time() < 0.3: pass"


def test_ended_processes_are_counted_with_their_parent() -> None:
    alone, all_before = process_cpu(os.getpid()).total, process_tree_cpu_with_ended(os.getpid()).total
    subprocess.run([sys.executable, "-c", _BUSY], check=True)
    of_children = process_tree_cpu_with_ended(os.getpid()).total - all_before
    assert of_children - (process_cpu(os.getpid()).total - alone) >= 0.25


@pytest.mark.parametrize("records", [0, 1, 99, 40_000])
def test_the_stand_in_gives_as_many_rows_as_it_was_asked_for(records: int) -> None:
    reader = PreparedReader(records=4 * records, record_bytes=100, partitions=4)
    parts = reader.partitions()
    assert len(parts) == 4
    batches = list(reader.read(parts[3]))
    assert sum(batch.num_rows for batch in batches) == records
    for batch in batches:
        assert batch.schema == arrow_schema(include_headers=True)
        assert set(batch.column("partition").to_pylist()) == {3}
        assert {len(value) for value in batch.column("value").to_pylist()} == {100}


def test_an_option_of_a_source_needs_a_value() -> None:
    told = CliRunner().invoke(main, ["--kafka-option", "kafka.max.poll.records"])
    assert told.exit_code != 0
    assert "'kafka.max.poll.records' is not NAME=VALUE" in told.output

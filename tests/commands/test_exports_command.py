"""`kafscale exports`: who exports what, how far it has come, beside a running broker and a running exporter."""

import asyncio
import json
import re
import signal
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from kafscale.cluster.exports import TopicExports
from kafscale.commands.cli import main
from kafscale.commands.exports_report import ExportLine, as_fields, as_text, export_lines
from kafscale.formats.export_records import ExportProgress, ExportRecord, ExportState
from kafscale.formats.partition_record import PartitionRecord, encode_partition_record
from kafscale.formats.topic_record import encode_topic_record
from kafscale.lake.export_lease import hold_export
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import Put
from kafscale.settings.broker import load_settings
from tests.metadata.etcd_stores import etcd_store
from tests.support.broker import running_broker
from tests.support.etcd_server import etcd_server
from tests.support.topics import create_topic
from tests.support.waiting import PATIENCE_SEC

NOW_MS = 1_700_000_000_000
HOLDER = ExportRecord(epoch=3, holder="host/7", acquired_ms=NOW_MS - 60_000)
PROGRESS = ExportProgress(
    topic="events",
    table="local.db.events",
    positions={0: 10, 1: 20},
    log_end_offsets={0: 10, 1: 21},
    rows=29,
    dead_letters=1,
    updated_ms=NOW_MS - 30_000,
)
ENDS = {"events": {0: 15, 1: 21, 2: 100}}

pytestmark = pytest.mark.usefixtures("logging_as_before")


def exports(environment: dict[str, str], *arguments: str) -> Result:
    return CliRunner().invoke(main, ["exports", *arguments], env=environment)


def exports_json(environment: dict[str, str]) -> list[dict[str, Any]]:
    result = exports(environment, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["exports"]
    assert isinstance(found, list)
    return found


def cells(text: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line) for line in text.splitlines()]


def lines_of(*progress: ExportProgress, holder: ExportRecord | None = HOLDER) -> list[ExportLine]:
    topic = TopicExports(topic="events", last=HOLDER, holder=holder, progress=progress)
    return export_lines([topic], ENDS)


def test_a_running_export() -> None:
    lines = lines_of(PROGRESS)
    assert cells(as_text(lines, NOW_MS)) == [
        ["TOPIC", "TABLE", "STATE", "HOLDER", "PARTITIONS", "ROWS", "DEAD LETTERS", "LAG", "LAST COMMIT"],
        ["events", "local.db.events", "running", "host/7", "2 of 3", "29", "1", "6", "30 s ago"],
    ]
    (fields,) = as_fields(lines, NOW_MS)["exports"]
    assert fields == {
        "topic": "events",
        "table": "local.db.events",
        "state": "running",
        "holder": {"name": "host/7", "epoch": 3, "since": "2023-11-14T22:12:20.000+00:00"},
        "last_holder": {"name": "host/7", "epoch": 3, "since": "2023-11-14T22:12:20.000+00:00"},
        "rows": 29,
        "dead_letters": 1,
        "error": None,
        "committed_at": "2023-11-14T22:12:50.000+00:00",
        "complete_at": None,
        "age_ms": 30_000,
        "lag": 6,
        "partition_count": 3,
        "partitions": [
            {"partition": 0, "position": 10, "log_end_offset_then": 10, "log_end_offset": 15, "lag": 5},
            {"partition": 1, "position": 20, "log_end_offset_then": 21, "log_end_offset": 21, "lag": 1},
        ],
    }


def test_the_moment_of_which_a_table_has_everything() -> None:
    (fields,) = as_fields(lines_of(replace(PROGRESS, complete_ms=NOW_MS - 5000)), NOW_MS)["exports"]
    assert fields["complete_at"] == "2023-11-14T22:13:15.000+00:00"


@pytest.mark.parametrize(
    ("state", "is_held", "shown"),
    [
        (ExportState.RUNNING, True, "running"),
        (ExportState.RUNNING, False, "interrupted"),
        (ExportState.FINISHED, True, "finished"),
        (ExportState.FINISHED, False, "finished"),
        (ExportState.FAILED, False, "failed"),
    ],
)
def test_what_has_become_of_an_export(state: ExportState, is_held: bool, shown: str) -> None:
    (line,) = lines_of(replace(PROGRESS, state=state), holder=HOLDER if is_held else None)
    assert line.state == shown


def test_owner_without_a_table_has_a_line_of_its_own() -> None:
    old = replace(PROGRESS, updated_ms=HOLDER.acquired_ms - 1, state=ExportState.FINISHED)
    assert cells(as_text(lines_of(old), NOW_MS))[1:] == [
        ["events", "local.db.events", "finished", "-", "2 of 3", "29", "1", "6", "60 s ago"],
        ["events", "-", "starting", "host/7", "-", "-", "-", "-", "-"],
    ]
    assert [line.state for line in lines_of()] == ["starting"]
    assert [line.state for line in lines_of(holder=None)] == ["interrupted"]


def test_tables_topics_and_errors_have_their_lines() -> None:
    failed = replace(PROGRESS, table="local.db.other", state=ExportState.FAILED, error="no such column")
    topics = [
        TopicExports(topic="gone", progress=(replace(PROGRESS, topic="gone"),)),
        TopicExports(topic="events", holder=HOLDER, progress=(PROGRESS, failed)),
    ]
    lines = export_lines(topics, ENDS)
    text = as_text(lines, NOW_MS)
    assert [row[:3] for row in cells(text)[1:4]] == [
        ["events", "local.db.events", "running"],
        ["events", "local.db.other", "failed"],
        ["gone", "local.db.events", "interrupted"],
    ]
    assert cells(text)[3][-2:] == ["no topic", "30 s ago"]
    assert text.endswith("Errors:\n  events into local.db.other: no such column")
    fields = as_fields(lines, NOW_MS)["exports"]
    assert [(one["lag"], one["partition_count"]) for one in fields] == [(6, 3), (6, 3), (None, None)]


@pytest.mark.parametrize(
    ("age_ms", "shown"),
    [
        (-5, "just now"),
        (1999, "just now"),
        (2000, "2 s ago"),
        (119_999, "119 s ago"),
        (120_000, "2 min ago"),
        (7_200_000, "2 h ago"),
        (400_000_000, "4 d ago"),
    ],
)
def test_ages_are_short(age_ms: int, shown: str) -> None:
    (line,) = lines_of(replace(PROGRESS, updated_ms=NOW_MS - age_ms), holder=None)
    assert as_text([line], NOW_MS).endswith(f"  {shown}")


def produce(bootstrap: str, counts: list[int]) -> None:
    """So many records to each partition."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, count in enumerate(counts):
        for _ in range(count):
            producer.produce("events", b"value", partition=partition)
    assert producer.flush(PATIENCE_SEC) == 0


def test_beside_a_broker_and_an_exporter(tmp_path: Path) -> None:
    with running_broker(tmp_path, flush_interval_ms=0) as broker:
        environment = broker.environment()
        assert exports(environment).stdout == "There are no exports.\n"
        assert not (broker.data_folder / "exports").exists()
        create_topic(broker, "events", partitions=2)
        produce(broker.bootstrap, [5, 3])
        with hold_export(load_settings(environment), "events", "host/7") as lease:
            ((topic, table, state, holder, *_),) = cells(exports(environment).stdout)[1:]
            assert (topic, table, state, holder) == ("events", "-", "starting", "host/7")
            now_ms = time.time_ns() // 1_000_000
            done = replace(PROGRESS, positions={0: 5, 1: 1}, log_end_offsets={0: 5, 1: 1}, updated_ms=now_ms)
            lease.record(done)
            (found,) = exports_json(environment)
            assert (found["state"], found["holder"]["name"], found["lag"]) == ("running", "host/7", 2)
            lease.record(replace(done, state=ExportState.FINISHED))
        (found,) = exports_json(environment)
        assert (found["state"], found["holder"], found["last_holder"]["epoch"]) == ("finished", None, 1)
        broker.send_signal(signal.SIGKILL)
        broker.wait_exit(10)
        assert [one["lag"] for one in exports_json(environment)] == [2]


def test_in_a_cluster(tmp_path: Path) -> None:
    with etcd_server(tmp_path) as server:
        environment = {
            "KAFSCALE_ETCD_ENDPOINTS": server.endpoint,
            "KAFSCALE_ETCD_PREFIX": "/of/this/test",
            "KAFSCALE_S3_BUCKET": "unused",
        }
        asyncio.run(put_topic(server.endpoint))
        assert exports(environment).stdout == "There are no exports.\n"
        with hold_export(load_settings(environment), "events", "host/7") as lease:
            lease.record(replace(PROGRESS, updated_ms=time.time_ns() // 1_000_000))
            (found,) = exports_json(environment)
        assert (found["state"], found["holder"]["name"], found["lag"]) == ("running", "host/7", 5)
        (found,) = exports_json(environment)
        assert (found["state"], found["holder"]) == ("interrupted", None)


async def put_topic(endpoint: str) -> None:
    """With a log end offset of 15 in partition 0 and 20 in partition 1."""
    record = TopicRecord(
        name="events", topic_id=uuid.uuid4(), partition_count=2, configs={}, state=TopicState.ACTIVE
    )
    puts = [Put(keys.topic("events"), encode_topic_record(record))]
    for partition, end in ((0, 15), (1, 20)):
        value = encode_partition_record(PartitionRecord(leader_epoch=1, log_end_offset=end))
        puts.append(Put(keys.partition("events", partition), value))
    async with etcd_store(endpoint, prefix="/of/this/test") as store:
        await store.transact([], puts)


def test_where_there_is_nothing_to_be_read(tmp_path: Path) -> None:
    result = exports({"KAFSCALE_DATA_DIR": str(tmp_path / "none")})
    assert result.exit_code == 1
    assert re.fullmatch(r"kafscale: there is no metadata file .*name the data folder of.*\n", result.stderr)
    assert not (tmp_path / "none").exists()
    assert exports({"KAFSCALE_DATA_DIR": ""}).exit_code == 2

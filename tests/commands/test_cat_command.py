"""`kafscale cat`: what it prints, which records, how it goes on, and its exit status."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafscale.commands.cat import EXIT_PIPE_CLOSED, POLL_SEC, CatOptions, run_cat
from kafscale.commands.cat_lines import LineFormat
from kafscale.commands.cli import main
from kafscale.protocol.compression import Codec
from kafscale.reader.requests import request_of
from tests.spark_jobs.support.sent_records import FIRST_TIMESTAMP_MS, Batch, Sent, batches_of, sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded
from tests.support.waiting import PATIENCE_SEC

pytestmark = pytest.mark.usefixtures("logging_as_before")

KAFSCALE = str(Path(sys.executable).with_name("kafscale"))
ODD = Sent(key=b"\xff\x00", value="grün\x1b[31m".encode(), headers=(("a", b"1"), ("b", None), ("c", b"\xfe")))


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> TopicWriter:
    writer = TopicWriter(embedded(tmp_path_factory.mktemp("cat")), "orders", partitions=2)
    writer.append(0, [*sent(20, "zero"), ODD], Codec.ZSTD, batch_records=7)
    writer.append(1, sent(20, "one"), batch_records=7)
    writer.append_batches(1, [Batch(records=sent(1), is_control=True)])
    writer.append(1, [Sent(key=b"key-3", value=None)], log_append_time_ms=FIRST_TIMESTAMP_MS)
    return writer


def cat(writer: TopicWriter, *options: str) -> Result:
    environment = {"KAFSCALE_DATA_DIR": str(writer.settings.data_dir)}
    return CliRunner().invoke(main, ["cat", *options], env=environment)


def lines(writer: TopicWriter, *options: str) -> list[str]:
    result = cat(writer, *options)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


def test_json_has_all_of_each_record(orders: TopicWriter) -> None:
    found = [json.loads(line) for line in lines(orders, "orders")]
    assert [(one["partition"], one["offset"]) for one in found] == [
        (one.partition, one.offset) for one in orders.stored()
    ]
    assert found[3] == {
        "topic": "orders",
        "partition": 0,
        "offset": 3,
        "timestamp": "2023-11-14T22:13:20.003Z",
        "timestampType": "CreateTime",
        "key": "key-3",
        "value": "zero-3",
        "headers": [],
    }
    odd, deleted = found[20], found[-1]
    assert (odd["keyBase64"], odd["value"]) == ("/wA=", "grün\x1b[31m")
    assert odd["headers"] == [
        {"key": "a", "value": "1"},
        {"key": "b", "value": None},
        {"key": "c", "valueBase64": "/g=="},
    ]
    assert (deleted["value"], deleted["timestampType"]) == (None, "LogAppendTime")


def test_control_characters_are_escaped_in_json(orders: TopicWriter) -> None:
    assert all(line.isprintable() for line in lines(orders, "orders"))


def test_keys_and_values_are_printed_as_they_are(orders: TopicWriter) -> None:
    assert lines(orders, "orders", "--format", "key=value", "--start", "19", "--partition", "1") == [
        "key-19=one-19",
        "key-3=null",
    ]
    result = cat(orders, "orders", "--format", "key=value", "--start", "20", "--partition", "0")
    assert result.stdout_bytes == b"\xff\x00=gr\xc3\xbcn\x1b[31m\n"
    assert lines(orders, "orders", "--format", "value", "--end", "2") == [
        "zero-0",
        "zero-1",
        "one-0",
        "one-1",
    ]


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--key", "key-3"], [(0, 3), (1, 3), (1, 21)]),
        (["--grep", r"^one-1[0-2]$"], [(1, 10), (1, 11), (1, 12)]),
        (["--grep", "ün"], [(0, 20)]),
        (["--grep", "-1", "--max-records", "2"], [(0, 1), (0, 10)]),
        (["--start", "2023-11-14T22:13:20.018Z", "--end", "20"], [(0, 18), (0, 19), (1, 18), (1, 19)]),
        (["--partition", "1", "--partition", "0", "--end", "1"], [(0, 0), (1, 0)]),
        (["--start", "latest"], []),
        (["--since", "1s"], []),
        (["--since", "36500d", "--end", "1"], [(0, 0), (1, 0)]),
    ],
)
def test_filters(orders: TopicWriter, options: list[str], offsets: list[tuple[int, int]]) -> None:
    found = [json.loads(line) for line in lines(orders, "orders", *options)]
    assert [(one["partition"], one["offset"]) for one in found] == offsets


@pytest.mark.parametrize(
    ("options", "status", "named"),
    [
        (["order"], 2, "no topic 'order' .*did you mean orders"),
        (["orders", "--partition", "2"], 2, "no partition 2: legal are 0 to 1"),
        (["orders", "--start", "-1"], 2, "start=-1 is not legal"),
        (["orders", "--start", "noon"], 2, "start='noon' is not legal"),
        (["orders", "--since", "5"], 2, "--since '5' is not legal"),
        (["orders", "--since", "5m", "--start", "1"], 2, "--start and --since"),
        (["orders", "--grep", "("], 2, r"--grep '\(' is not legal"),
        (["orders", "--follow", "--end", "5"], 2, "--end is not legal with --follow"),
        (
            ["orders", "--source", "s3://bucket/ns", "--follow"],
            2,
            "--follow is not legal with s3://bucket/ns",
        ),
        (["orders", "--source", "/nowhere"], 1, "/nowhere is not there"),
    ],
)
def test_what_is_wrong_is_named(orders: TopicWriter, options: list[str], status: int, named: str) -> None:
    result = cat(orders, *options)
    assert (result.exit_code, result.stdout) == (status, "")

    assert re.search(named, result.stderr), result.stderr
    assert result.stderr.count("\n") == 1


def test_expired_offsets_are_an_error_or_the_earliest_will_do(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "orders")
    writer.append(0, sent(5))
    writer.append(0, sent(5))
    writer.move_log_start(0, 5)
    result = cat(writer, "orders", "--start", "2")
    assert result.exit_code == 1
    assert (
        "offsets 2 to 4 of partition 0 of topic 'orders' are gone: its log has the offsets 5 to 9"
        in result.stderr
    )
    assert len(lines(writer, "orders", "--start", "2", "--on-expired", "earliest")) == 5


class Steps:
    """The events while `--follow` sleeps, one for each time."""

    def __init__(self, *steps: Any) -> None:
        self._left = list(steps)

    def __call__(self, seconds: float) -> None:
        assert seconds == POLL_SEC
        self._left.pop(0)()


def follow(writer: TopicWriter, steps: Steps, **options: Any) -> int:
    request = request_of("orders", start=options.pop("start", None))
    wanted = CatOptions(
        source=str(writer.settings.data_dir),
        request=request,
        line_format=LineFormat.VALUE,
        follow=True,
        **options,
    )
    return run_cat(wanted, {}, steps)


def test_following_goes_on_with_what_is_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TopicWriter(embedded(tmp_path), "orders", partitions=2)
    writer.append(0, sent(3, "old"))
    writer.lead()
    steps = Steps(
        lambda: writer.append_entry({1: batches_of(sent(2, "one"))}),
        lambda: None,
        lambda: writer.append_entry({0: batches_of(sent(2, "two")), 1: batches_of(sent(2, "three"))}),
    )
    assert follow(writer, steps, max_records=9) == 0
    assert capsys.readouterr().out.split() == [
        "old-0", "old-1", "old-2", "one-0", "one-1", "two-0", "two-1", "three-0", "three-1",
    ]  # fmt: skip


def test_ctrl_c_ends_following_without_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TopicWriter(embedded(tmp_path), "orders")
    writer.append(0, sent(3, "old"))

    def interrupt() -> None:
        raise KeyboardInterrupt

    assert follow(writer, Steps(lambda: writer.append(0, sent(1, "new")), interrupt), start="latest") == 0
    assert capsys.readouterr().out.split() == ["new-0"]


@pytest.fixture
def following(orders: TopicWriter) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "KAFSCALE_DATA_DIR": str(orders.settings.data_dir)}
    command = [KAFSCALE, "cat", "orders", "--follow", "--format", "value"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        yield process
        process.kill()


def test_a_following_process_ends_at_ctrl_c(following: subprocess.Popen[bytes]) -> None:
    assert following.stdout is not None
    assert following.stdout.readline() == b"zero-0\n"
    following.send_signal(signal.SIGINT)
    _, errors = following.communicate(timeout=PATIENCE_SEC)
    assert (following.returncode, errors) == (0, b"")


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "orders")
    writer.append(0, sent(300, value_bytes=4096))
    environment = {**os.environ, "KAFSCALE_DATA_DIR": str(tmp_path)}
    with subprocess.Popen(
        [KAFSCALE, "cat", "orders"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        assert (process.wait(PATIENCE_SEC), errors) == (EXIT_PIPE_CLOSED, b"")


def test_it_needs_neither_arrow_nor_numpy(orders: TopicWriter) -> None:
    program = (
        "import sys\n"
        "for name in ('pyarrow', 'numpy', 'numba'): sys.modules[name] = None\n"
        "from kafscale.commands.cli import main\n"
        "main(['cat', 'orders', '--max-records', '1'])\n"
    )
    environment = {**os.environ, "KAFSCALE_DATA_DIR": str(orders.settings.data_dir)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        timeout=PATIENCE_SEC,
        check=True,
    )
    assert json.loads(done.stdout)["offset"] == 0

"""The compaction process by itself: what it answers, and how it ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO, cast

import pytest

from kafscale.log.compaction.cleaned_transactions import AbortedRange
from kafscale.log.compaction.cleaner import CleaningRules, CleaningTotals
from kafscale.log.compaction.worker import encode_begin
from kafscale.log.compaction.worker_frames import Frame, read_frame, write_frame
from tests.log.compaction.logs_of_keys import Sent, batch_of, marker_of
from tests.support.waiting import PATIENCE_SEC

RULES = CleaningRules(
    now_ms=0, delete_retention_ms=0, first_dirty_offset=0, last_batches={1: 2}, opened_limit_bytes=1 << 20
)


@pytest.fixture
def worker() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(
        [sys.executable, "-m", "kafscale.log.compaction.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        yield process
        process.kill()


def pipes(worker: "subprocess.Popen[bytes]") -> tuple[BinaryIO, BinaryIO]:
    """The ways to it and from it."""
    return cast(BinaryIO, worker.stdin), cast(BinaryIO, worker.stdout)


def ask(worker: "subprocess.Popen[bytes]", kind: Frame, payload: bytes = b"") -> tuple[Frame, bytes]:
    requests, answers = pipes(worker)
    write_frame(requests, kind, payload)
    answer = read_frame(answers)
    assert answer is not None
    return answer


def test_a_request_that_cannot_be_served_gets_the_problem(
    worker: "subprocess.Popen[bytes]",
) -> None:
    kind, problem = ask(worker, Frame.CLEAN, b"")
    assert (kind, problem) == (Frame.FAILED, b"AssertionError: BEGIN comes first")
    assert ask(worker, Frame.BEGIN, encode_begin(RULES, 1 << 16, 10)) == (Frame.DONE, b"")
    kind, problem = ask(worker, Frame.CLEAN, b"not a batch")
    assert kind is Frame.FAILED
    assert b"shorter than the header" in problem
    assert ask(worker, Frame.MAP, batch_of([Sent(b"a", b"1")])) == (Frame.DONE, b"[false, 1]")


def test_an_interrupt_from_the_terminal_does_not_end_it(worker: "subprocess.Popen[bytes]") -> None:
    assert ask(worker, Frame.BEGIN, encode_begin(RULES, 1 << 16, 10)) == (Frame.DONE, b"")
    os.kill(worker.pid, signal.SIGINT)
    assert ask(worker, Frame.MAP, batch_of([Sent(b"a", b"1")])) == (Frame.DONE, b"[false, 1]")


@pytest.mark.parametrize("sends_half_a_frame", [False, True])
def test_it_ends_quietly_with_its_broker(worker: "subprocess.Popen[bytes]", sends_half_a_frame: bool) -> None:
    assert ask(worker, Frame.BEGIN, encode_begin(RULES, 1 << 16, 10)) == (Frame.DONE, b"")
    requests, answers = pipes(worker)
    answers.close()
    if sends_half_a_frame:
        requests.write(b"\x02\x00")
    else:
        write_frame(requests, Frame.MAP, batch_of([Sent(b"a", b"1")]))
    requests.close()
    assert worker.wait(PATIENCE_SEC) == 0
    assert worker.stderr is not None
    assert worker.stderr.read() == b""


def test_transactions_reach_it_and_can_come_once_more(worker: "subprocess.Popen[bytes]") -> None:
    """An aborted transaction without records has its marker left, here and in the second pass."""
    rules = replace(RULES, aborted=[AbortedRange(7, 0, 2), AbortedRange(8, 1, 3)])
    log = (
        batch_of([Sent(b"a", b"1")], 1, producer=(8, 0, 0), is_transactional=True)
        + marker_of(2, 7, commits=False)
        + marker_of(3, 8, commits=False)
    )
    assert ask(worker, Frame.BEGIN, encode_begin(rules, 1 << 16, 10)) == (Frame.DONE, b"")
    assert ask(worker, Frame.MAP, log) == (Frame.DONE, b"[false, 4]")
    cleaned = ask(worker, Frame.CLEAN, log)
    (kind, ended) = ask(worker, Frame.END)
    assert kind is Frame.DONE
    totals = CleaningTotals(*json.loads(ended)[1])
    assert (totals.removed_records, totals.gone_transactions) == (1, [2])
    assert ask(worker, Frame.AGAIN) == (Frame.DONE, b"")
    assert ask(worker, Frame.CLEAN, log) == cleaned
    assert ask(worker, Frame.END) == (kind, ended)

"""Processes that stand still now and then: which, when, and that all of them go on in the end."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pauses import PAUSE_SEC, Pauses, may_be_stopped, processes_below
from tests.support.waiting import PATIENCE_SEC, wait_until

ENDS_WHEN_ASKED = "import os, sys; print(os.getpid(), flush=True); sys.exit(int(sys.stdin.readline()))"

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_each_process_is_stopped_and_goes_on() -> None:
    pauses, told, stopped_at = Pauses(random.Random(1)), dict[int, list[signal.Signals]](), dict[int, float]()
    for step in range(2000):
        now_sec = step / 100
        for pid, what in pauses.step(now_sec, {1, 2, 3, 4}, lambda pid: pid != 4):
            told.setdefault(pid, []).append(what)
            if what == signal.SIGSTOP:
                stopped_at[pid] = now_sec
            else:
                assert now_sec - stopped_at[pid] <= PAUSE_SEC[1] + 0.02
    assert sorted(told) == [1, 2, 3]
    for signals in told.values():
        assert len(signals) > 10
        assert signals == [(signal.SIGSTOP, signal.SIGCONT)[number % 2] for number in range(len(signals))]


def test_a_process_that_is_gone_is_forgotten() -> None:
    pauses, step = Pauses(random.Random(1)), 0
    while 1 not in pauses.stopped:
        pauses.step(step / 100, {1}, lambda _: True)
        step += 1
    assert pauses.step(step + 100, set(), lambda _: True) == []
    assert not pauses.stopped


def test_the_command_stands_still_and_ends_with_its_status() -> None:
    command = [sys.executable, "-m", "tests.pauses", sys.executable, "-c", ENDS_WHEN_ASKED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdin is not None and started.stdout is not None
        pid = int(started.stdout.readline())
        for _ in range(2):
            wait_until(lambda: is_stopped(pid), "the process stands still")
            wait_until(lambda: not is_stopped(pid), "it goes on")
        started.stdin.write("7\n")
        started.stdin.close()
        assert started.wait(PATIENCE_SEC) == 7


def test_who_is_stopped_by_others_is_left_alone(tmp_path: Path) -> None:
    link = tmp_path / "etcd"
    link.symlink_to("/bin/cat")
    with (
        subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as one,
        subprocess.Popen([link], stdin=subprocess.PIPE) as etcd,
    ):
        assert {one.pid, etcd.pid} <= processes_below(os.getpid())
        wait_until(lambda: may_be_stopped(one.pid), "it has begun")
        wait_until(lambda: not may_be_stopped(etcd.pid), "etcd is left alone")
        one.send_signal(signal.SIGSTOP)
        wait_until(lambda: not may_be_stopped(one.pid), "the test has stopped it")
        one.send_signal(signal.SIGCONT)
    assert not may_be_stopped(one.pid)


def test_without_a_command_it_explains_itself() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.pauses"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "python -m tests.pauses COMMAND" in done.stderr

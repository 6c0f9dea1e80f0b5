"""A command whose processes stand still now and then: `python -m tests.pauses COMMAND...`, or `make test-paused`.

A busy machine holds up one process while the others go on. A test that takes a moment for granted fails then, once in
a hundred runs. Here that happens all the time: each process below the command runs for 0.6 s on average and is then
stopped for half a second at most. Linux only.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

RUN_SEC = 0.6
PAUSE_SEC = (0.02, 0.5)
LEFT_ALONE = frozenset({"etcd"})
"""By the name of the program. Tests stop etcd themselves, and would find that it goes on."""

_STEP_SEC = 0.01
_LOOK_SEC = 0.5
_PROC = Path("/proc")
_STOPPED = "T"


class Pauses:
    """Which process is stopped, and when it goes on. Pure: times are a steady clock's, in seconds."""

    def __init__(self, generator: random.Random) -> None:
        self._generator = generator
        self._next: dict[int, float] = {}
        self.stopped: set[int] = set()

    def step(
        self, now_sec: float, alive: Collection[int], may_stop: Callable[[int], bool]
    ) -> list[tuple[int, signal.Signals]]:
        """The signals to send now. `alive`: the processes; one that is gone is forgotten.

        `may_stop`: asked when a process is due; one that may not be stopped then runs on until it is due again.
        """
        for pid in self._next.keys() - alive:
            del self._next[pid]
            self.stopped.discard(pid)
        for pid in alive:
            if pid not in self._next:
                self._next[pid] = now_sec + self._generator.expovariate(1 / RUN_SEC)
        due = [pid for pid, at_sec in self._next.items() if now_sec >= at_sec]
        return [self._turn(pid, now_sec) for pid in due if self._may_turn(pid, now_sec, may_stop)]

    def _may_turn(self, pid: int, now_sec: float, may_stop: Callable[[int], bool]) -> bool:
        if pid in self.stopped or may_stop(pid):
            return True
        self._next[pid] = now_sec + self._generator.expovariate(1 / RUN_SEC)
        return False

    def _turn(self, pid: int, now_sec: float) -> tuple[int, signal.Signals]:
        if pid in self.stopped:
            self.stopped.remove(pid)
            self._next[pid] = now_sec + self._generator.expovariate(1 / RUN_SEC)
            return pid, signal.SIGCONT
        self.stopped.add(pid)
        self._next[pid] = now_sec + self._generator.uniform(*PAUSE_SEC)
        return pid, signal.SIGSTOP


def processes_below(root: int) -> set[int]:
    """The process ids of its children, of theirs, and so on."""
    found: set[int] = set()
    to_ask = [root]
    while to_ask:
        for listed in _PROC.glob(f"{to_ask.pop()}/task/*/children"):
            with contextlib.suppress(OSError):
                children = {int(pid) for pid in listed.read_text().split()} - found
                found |= children
                to_ask += children
    return found


def may_be_stopped(pid: int) -> bool:
    """False for a program that is left alone, for one that somebody else has stopped, and for none."""
    try:
        _, _, after = (_PROC / str(pid) / "stat").read_text().rpartition(")")
        name = (_PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return False
    return name not in LEFT_ALONE and after.split()[0] != _STOPPED


def keep_pausing(root: int, pauses: Pauses, has_ended: Callable[[], bool]) -> int:
    """Stop processes below the root until it has ended; all of them go on then. Returns the number of stops."""
    stops, look_at, alive = 0, 0.0, set[int]()
    try:
        while not has_ended():
            now = time.monotonic()
            if now >= look_at:
                look_at = now + _LOOK_SEC
                alive = processes_below(root)
            for pid, what in pauses.step(now, alive, may_be_stopped):
                stops += what == signal.SIGSTOP
                _send(pid, what)
            time.sleep(_STEP_SEC)
    finally:
        for pid in pauses.stopped:
            _send(pid, signal.SIGCONT)
    return stops


def _send(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)


def main(command: list[str]) -> int:
    """Run the command. The exit status is its own; 2 without one."""
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    with subprocess.Popen(command) as process:
        stops = keep_pausing(os.getpid(), Pauses(random.Random()), lambda: process.poll() is not None)
    print(f"processes stood still {stops:,} times", file=sys.stderr)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`make test`: the runs of pytest that tests.schedule plans, side by side.

Arguments are pytest's, for each run: `python -m tests.run -k produce`. With a path among them it is one run.
What the first process prints is shown as it goes on; that of the others comes when all have ended. What failed stands
once more at the very end, so that a log which keeps only its last lines names it too.
"""

import itertools
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from _pytest.config import ExitCode

from tests.schedule import Run, entries, plan
from tests.support.shared_files import last_test

LAST_LINES = 15
_PLUGINS = ("-p", "tests.support.cpu_seconds", "-p", "tests.support.time_limit")
_PYTEST = (sys.executable, "-m", "pytest", *_PLUGINS)
_COUNTED = ("passed", "failed", "errors", "error", "skipped", "xfailed")


@dataclass(frozen=True, slots=True)
class Ended:
    """A process of pytest that has ended: all it printed, and the last test that it began, if it said so."""

    status: int
    lines: tuple[str, ...]
    last_test: str = ""

    def why(self) -> tuple[str, ...]:
        """The lines to look at: one for each test that failed, or how the process broke off."""
        if self.status in (ExitCode.OK, ExitCode.NO_TESTS_COLLECTED):
            return ()
        failed = tuple(line for line in self.lines if line.startswith(("FAILED ", "ERROR ")))
        if failed:
            return failed
        where = (f"ended with status {self.status} in {self.last_test}",) if self.last_test else ()
        return (*self.lines[-LAST_LINES:], *where)


def main(arguments: list[str]) -> int:
    """Carry out the plan. The exit status is that of the first process that failed."""
    if any(Path(argument.partition("::")[0]).exists() for argument in arguments):
        return subprocess.run([*_PYTEST, *arguments], check=False).returncode
    began = time.monotonic()
    ended = side_by_side(plan(entries(), arguments))
    print(f"{counted(ended)} in {time.monotonic() - began:.0f} s in all")
    print(*(line for one in ended for line in one.why()), sep="\n")
    return verdict([one.status for one in ended])


def counted(ended: Iterable[Ended]) -> str:
    """The sum of what the last lines of pytest say: `15731 passed, 2 failed`."""
    counts: Counter[str] = Counter()
    for one in ended:
        last = next((line for line in reversed(one.lines) if re.search(r" in [\d.]+s", line)), "")
        for number, what in re.findall(r"(\d+) (\w+)", last):
            counts[what] += int(number) if what in _COUNTED else 0
    return ", ".join(f"{counts[what]} {what}" for what in _COUNTED if counts[what]) or "nothing"


def verdict(statuses: Sequence[int]) -> int:
    """The status of the first run that failed. A run that `-k` left without tests is no failure beside others."""
    failed = [one for one in statuses if one not in (ExitCode.OK, ExitCode.NO_TESTS_COLLECTED)]
    return failed[0] if failed else min(statuses)


def side_by_side(runs: Sequence[Run]) -> list[Ended]:
    """Carry out the runs at the same time, and print what the first process says as it comes."""
    with tempfile.TemporaryDirectory() as folder:
        (shown, *others), *more = (_processes(run, Path(folder)) for run in runs)
        late = [_sharing(run, Path(folder), "a late one") for run in runs if run.has_late]
        hidden = [[process] for process in (*others, *itertools.chain(*more))]
        if late and hidden:
            hidden[-1] += late
        with ThreadPoolExecutor(len(hidden) + 1) as pool:
            beside = [pool.submit(_one_by_one, processes) for processes in hidden]
            ended = [_ended(shown, shows=True)]
            for processes, future in zip(hidden, beside, strict=True):
                for process, one in zip(processes, future.result(), strict=True):
                    ended.append(one)
                    print(f"--- {process.name}", *one.lines, sep="\n", flush=True)
    return ended


@dataclass(frozen=True, slots=True)
class _Process:
    name: str
    arguments: tuple[str, ...]
    share: Path


def _processes(run: Run, folder: Path) -> list[_Process]:
    if run.processes == 1:
        return [_Process(run.name, run.arguments, folder)]
    return [_sharing(run, folder, f"{number} of {run.processes}") for number in range(1, run.processes + 1)]


def _sharing(run: Run, folder: Path, which: str) -> _Process:
    share = folder / run.name.replace(" ", "-")
    share.mkdir(exist_ok=True)
    return _Process(f"{run.name}, {which}", (*run.arguments, "--share", str(share)), share)


def _one_by_one(processes: Sequence[_Process]) -> list[Ended]:
    return [_ended(process, shows=False) for process in processes]


def _ended(process: _Process, *, shows: bool) -> Ended:
    lines = []
    command = [*_PYTEST, *process.arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as started:
        assert started.stdout is not None
        for line in started.stdout:
            if shows:
                print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    return Ended(started.returncode, tuple(lines), last_test(process.share, started.pid))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`make test`: the runs of pytest that tests.schedule plans, side by side.

Arguments are pytest's, for each run: `python -m tests.run -k produce`. With a path among them it is one run.
The first run is shown as it goes on; what the others print comes when all have ended. What failed stands once more
at the very end, so that a log which keeps only its last lines names it too.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from _pytest.config import ExitCode

from tests.schedule import Run, entries, plan

LAST_LINES = 15
_PLUGINS = ("-p", "tests.support.cpu_seconds", "-p", "tests.support.time_limit")
_PYTEST = (sys.executable, "-m", "pytest", *_PLUGINS)


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that has ended, with all it printed."""

    status: int
    lines: tuple[str, ...]

    def why(self) -> tuple[str, ...]:
        """The lines to look at: one for each test that failed, or how the run broke off."""
        if self.status in (ExitCode.OK, ExitCode.NO_TESTS_COLLECTED):
            return ()
        return (
            tuple(line for line in self.lines if line.startswith(("FAILED ", "ERROR ")))
            or self.lines[-LAST_LINES:]
        )


def main(arguments: list[str]) -> int:
    """Carry out the plan. The exit status is that of the first run that failed."""
    if any(Path(argument.partition("::")[0]).exists() for argument in arguments):
        return subprocess.run([*_PYTEST, *arguments], check=False).returncode
    began = time.monotonic()
    ended = side_by_side(plan(entries(), arguments))
    print(
        f"{time.monotonic() - began:.0f} s in all", *(line for one in ended for line in one.why()), sep="\n"
    )
    return verdict([one.status for one in ended])


def verdict(statuses: Sequence[int]) -> int:
    """The status of the first run that failed. A run that `-k` left without tests is no failure beside others."""
    failed = [one for one in statuses if one not in (ExitCode.OK, ExitCode.NO_TESTS_COLLECTED)]
    return failed[0] if failed else min(statuses)


def side_by_side(runs: Sequence[Run]) -> list[Ended]:
    """Carry out the runs at the same time, and print what the first says as it comes."""
    shown, *hidden = runs
    with ThreadPoolExecutor(len(runs)) as pool:
        beside = [pool.submit(_run_hidden, run) for run in hidden]
        ended = [_run_shown(shown)]
        for run, future in zip(hidden, beside, strict=True):
            ended.append(future.result())
            print(f"--- {run.name}", *ended[-1].lines, sep="\n", flush=True)
    return ended


def _run_hidden(run: Run) -> Ended:
    command = [*_PYTEST, *run.arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return Ended(done.returncode, tuple(done.stdout.splitlines()))


def _run_shown(run: Run) -> Ended:
    lines = []
    command = [*_PYTEST, *run.arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    return Ended(process.returncode, tuple(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

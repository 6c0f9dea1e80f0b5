"""`make test`: two runs of pytest side by side, one for each of two cores, and then two others.

First what only computes beside what runs Spark, then tests that start servers and mostly wait. Arguments are
pytest's, for each of the four: `python -m tests.run -k produce`. With a path among them it is one run.
What failed stands once more at the very end: a log that keeps only its last lines tells it too.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from _pytest.config import ExitCode

TESTS = Path(__file__).parent
COMPUTING = (
    "broker",
    "cache",
    "chart",
    "cluster",
    "commands",
    "formats",
    "golden",
    "groups",
    "handlers",
    "log",
    "memory",
    "objects",
    "ops",
    "property",
    "protocol",
    "serving",
    "settings",
    "sim",
    "tasks",
    "tools",
)
WITH_SPARK = ("spark_jobs",)
CLUSTERS = ("integration",)
LAST_LINES = 15
NOT_HERE = ("k8s",)  # `make test-k8s`: its control plane takes minutes to build


def others() -> list[str]:
    """Whatever is not named above, and belongs to `make test`."""
    return [
        path.name
        for path in sorted(TESTS.iterdir())
        if path.name not in (*COMPUTING, *WITH_SPARK, *CLUSTERS, *NOT_HERE)
        and ((path.is_dir() and (path / "__init__.py").exists()) or path.name.startswith("test_"))
    ]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of pytest that has ended, with all it printed."""

    status: int
    lines: tuple[str, ...]

    def why(self) -> tuple[str, ...]:
        """What to look at: each test that failed in a line, or how the run broke off."""
        if self.status in (ExitCode.OK, ExitCode.NO_TESTS_COLLECTED):
            return ()
        return (
            tuple(line for line in self.lines if line.startswith(("FAILED ", "ERROR ")))
            or self.lines[-LAST_LINES:]
        )


def main(arguments: list[str]) -> int:
    """Run all four, whatever becomes of one; the exit status is that of the first that failed."""
    if any(Path(argument.partition("::")[0]).exists() for argument in arguments):
        return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode
    runs = [
        *_side_by_side(COMPUTING, WITH_SPARK, arguments),
        *_side_by_side(others(), CLUSTERS, arguments),
    ]
    print(*(line for run in runs for line in run.why()), sep="\n", flush=True)
    failed = [run.status for run in runs if run.why()]
    return failed[0] if failed else min(run.status for run in runs)


def _side_by_side(shown: Sequence[str], kept: Sequence[str], arguments: list[str]) -> list[Run]:
    """What became of both. What the second prints comes when both have ended."""
    with tempfile.TemporaryFile("w+") as said:
        beside = subprocess.Popen(_pytest(kept, arguments), stdout=said, stderr=subprocess.STDOUT)
        try:
            runs = [_run_shown(_pytest(shown, arguments))]
            beside.wait()
        finally:
            beside.kill()
        said.seek(0)
        runs.append(Run(beside.returncode, tuple(said.read().splitlines())))
    print(*runs[-1].lines, sep="\n", flush=True)
    return runs


def _run_shown(command: list[str]) -> Run:
    """Run a command whose lines are shown as they come."""
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    return Run(process.returncode, tuple(lines))


def _pytest(names: Sequence[str], arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "pytest", *arguments, *(str(TESTS / name) for name in names)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

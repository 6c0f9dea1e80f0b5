"""The plan of `make test`: which runs of pytest there are. tests.run carries it out.

Two runs side by side: Spark's, whose session all its tests share, and all the others, by files to several workers
of which most wait for servers. A package of tests belongs to the second unless it is named here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent
WITH_SPARK = ("spark_jobs",)
NOT_HERE = ("k8s",)  # `make test-k8s`: its control plane takes minutes to build
FIRST = "tests.support.longest_first"
# A test that hangs ends its worker. The run would hang too if xdist started another one in the middle of a file.
_NO_RESTART = ("--max-worker-restart", "0")
_DAY = ("-m", "not nightly")
WORKERS = 4  # on two cores: what starts servers waits most of the time


@dataclass(frozen=True, slots=True)
class Run:
    """One run of pytest: its name for people, and the arguments that choose its tests and its workers."""

    name: str
    arguments: tuple[str, ...]


def entries(folder: Path = TESTS) -> list[str]:
    """Every package and file of tests in the folder, by name."""
    return [
        path.name
        for path in sorted(folder.iterdir())
        if (path.is_dir() and any(path.rglob("test_*.py"))) or path.name.startswith("test_")
    ]


def plan(names: Iterable[str], arguments: Sequence[str] = ()) -> tuple[Run, ...]:
    """The runs that go on side by side; pytest's further arguments are for each of them."""
    others = [name for name in names if name not in (*WITH_SPARK, *NOT_HERE)]
    by_file = ("-n", str(WORKERS), "--dist", "loadfile", "--no-loadscope-reorder", "-p", FIRST)
    return (
        Run("tests", (*by_file, *_NO_RESTART, *_DAY, *arguments, *_paths(others))),
        Run("tests with Spark", (*_DAY, *arguments, *_paths(WITH_SPARK))),
    )


def _paths(names: Iterable[str]) -> list[str]:
    return [str(TESTS / name) for name in names]

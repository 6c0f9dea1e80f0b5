"""The plan of `make test`: which runs of pytest there are. tests.run carries it out.

Three runs side by side: Spark's, whose session all its tests share; the packages that mostly start processes and wait
for them; and all the others. The last two go by files to workers, and each worker collects only its run's tests. A
package of tests belongs to the others unless it is named here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent
WITH_SPARK = ("spark_jobs",)
WITH_PROCESSES = (
    "bench",
    "commands",
    "compat",
    "contract",
    "deploy",
    "hostile",
    "integration",
    "operator",
    "package",
    "testing",
)
NOT_HERE = ("k8s",)  # `make test-k8s`: its control plane takes minutes to build
FIRST = "tests.support.longest_first"
# A test that hangs ends its worker. The run would hang too if xdist started another one in the middle of a file.
_NO_RESTART = ("--max-worker-restart", "0")
_DAY = ("-m", "not nightly")
WORKERS = 2  # of each run, on two cores: what starts processes waits most of the time


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
    names = [name for name in names if name not in NOT_HERE]
    others = [name for name in names if name not in (*WITH_SPARK, *WITH_PROCESSES)]
    with_processes = [name for name in names if name in WITH_PROCESSES]
    by_file = ("-n", str(WORKERS), "--dist", "loadfile", "--no-loadscope-reorder", "-p", FIRST, *_NO_RESTART)
    with_spark = [name for name in names if name in WITH_SPARK]
    runs = (
        ("tests", by_file, others),
        ("tests with processes", by_file, with_processes),
        ("tests with Spark", (), with_spark),
    )
    return tuple(
        Run(name, (*options, *_DAY, *arguments, *_paths(chosen))) for name, options, chosen in runs if chosen
    )


def _paths(names: Iterable[str]) -> list[str]:
    return [str(TESTS / name) for name in names]

"""The plan of `make test`: which runs of pytest there are. tests.run carries it out.

Three runs side by side: Spark's, whose session all its tests share; the packages that mostly start processes and wait
for them; and all the others. Processes of pytest share the files of the last two (tests.support.shared_files). A
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
TOGETHER = ("tests/compat",)  # each of its folders has brokers and Java programs that all its files use
_SHARED = ("-p", "tests.support.longest_first", "-p", "tests.support.shared_files")
_TOGETHER = tuple(f"--together={folder}" for folder in TOGETHER)
_NO_PERCENTAGE = ("-o", "console_output_style=classic")  # it would be that of the others' tests, too
_DAY = ("-m", "not nightly")
PROCESSES, WAITING_PROCESSES = 2, 3  # on two cores; what starts processes waits most of the time


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its name for people, pytest's arguments, and how many processes of pytest share its files.

    `has_late`: once the last of the runs has ended, one process more shares the files that are left.
    """

    name: str
    arguments: tuple[str, ...]
    processes: int = 1
    has_late: bool = False


def entries(folder: Path = TESTS) -> list[str]:
    """Every package and file of tests in the folder, by name."""
    return [
        path.name
        for path in sorted(folder.iterdir())
        if (path.is_dir() and any(path.rglob("test_*.py"))) or path.name.startswith("test_")
    ]


def plan(names: Iterable[str], arguments: Sequence[str] = ()) -> tuple[Run, ...]:
    """The runs that go on side by side; pytest's further arguments are for each of them.

    A caller's `-n` is pytest-xdist's: it shares out the files itself.
    """
    names = [name for name in names if name not in NOT_HERE]
    others = [name for name in names if name not in (*WITH_SPARK, *WITH_PROCESSES)]
    with_processes = [name for name in names if name in WITH_PROCESSES]
    with_spark = [name for name in names if name in WITH_SPARK]
    shared_by_xdist = any(argument.startswith("-n") for argument in arguments)
    runs = (
        ("tests", _SHARED, others, 1 if shared_by_xdist else PROCESSES),
        (
            "tests with processes",
            (*_SHARED, *_TOGETHER),
            with_processes,
            1 if shared_by_xdist else WAITING_PROCESSES,
        ),
        ("tests with Spark", (), with_spark, 1),
    )
    return tuple(
        Run(
            name,
            (*options, *_NO_PERCENTAGE, *_DAY, *arguments, *_paths(chosen)),
            count,
            has_late=chosen is others and count > 1,
        )
        for name, options, chosen, count in runs
        if chosen
    )


def halves(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """The paths of all tests in two parts that take about as long to collect."""
    names = list(names)
    others = [name for name in names if name in (*WITH_SPARK, *WITH_PROCESSES, *NOT_HERE)]
    return _paths(name for name in names if name not in others), _paths(others)


def _paths(names: Iterable[str]) -> list[str]:
    return [str(TESTS / name) for name in names]

"""`make test`: first what only computes, on every core at once; then what starts servers and waits, alone.

Arguments are pytest's, for both parts: `python -m tests.run -k produce`. With a path among them it is one run.
"""

import subprocess
import sys
from pathlib import Path

from _pytest.config import ExitCode

TESTS = Path(__file__).parent
SIDE_BY_SIDE = (
    "cache",
    "golden",
    "groups",
    "handlers",
    "ops",
    "property",
    "protocol",
    "sim",
    "spark_jobs",
    "storage",
)
WORKERS = "2"


def parts() -> tuple[list[str], list[str]]:
    """The paths of both parts. Whatever is not named above is in the second one."""
    together = [str(TESTS / name) for name in SIDE_BY_SIDE]
    alone = [
        str(path)
        for path in sorted(TESTS.iterdir())
        if path.name not in SIDE_BY_SIDE
        and ((path.is_dir() and (path / "__init__.py").exists()) or path.name.startswith("test_"))
    ]
    return together, alone


def main(arguments: list[str]) -> int:
    """Run both parts, whatever becomes of the first; the exit status is that of the first that failed."""
    if any(Path(argument.partition("::")[0]).exists() for argument in arguments):
        return _pytest(arguments)
    together, alone = parts()
    statuses = [
        _pytest(["-n", WORKERS, "--dist", "loadgroup", *arguments, *together]),
        _pytest([*arguments, *alone]),
    ]
    failed = [status for status in statuses if status not in (ExitCode.OK, ExitCode.NO_TESTS_COLLECTED)]
    return failed[0] if failed else min(statuses)


def _pytest(arguments: list[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

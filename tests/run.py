"""`make test`: what only computes and what runs Spark side by side, then what starts servers and waits, alone.

Arguments are pytest's, for each of the three: `python -m tests.run -k produce`. With a path among them it is one run.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from _pytest.config import ExitCode

TESTS = Path(__file__).parent
COMPUTING = ("cache", "golden", "groups", "handlers", "ops", "property", "protocol", "sim", "storage")
WITH_SPARK = ("spark_jobs",)


def alone() -> list[str]:
    """Whatever is not named above."""
    return [
        path.name
        for path in sorted(TESTS.iterdir())
        if path.name not in (*COMPUTING, *WITH_SPARK)
        and ((path.is_dir() and (path / "__init__.py").exists()) or path.name.startswith("test_"))
    ]


def main(arguments: list[str]) -> int:
    """Run all three, whatever becomes of one; the exit status is that of the first that failed."""
    if any(Path(argument.partition("::")[0]).exists() for argument in arguments):
        return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode
    with tempfile.TemporaryFile() as said:
        with_spark = subprocess.Popen(_pytest(WITH_SPARK, arguments), stdout=said, stderr=subprocess.STDOUT)
        try:
            statuses = [subprocess.run(_pytest(COMPUTING, arguments), check=False).returncode]
            statuses.append(with_spark.wait())
        finally:
            with_spark.kill()
        said.seek(0)
        sys.stdout.buffer.write(said.read())
        sys.stdout.flush()
    statuses.append(subprocess.run(_pytest(alone(), arguments), check=False).returncode)
    failed = [status for status in statuses if status not in (ExitCode.OK, ExitCode.NO_TESTS_COLLECTED)]
    return failed[0] if failed else min(statuses)


def _pytest(names: tuple[str, ...] | list[str], arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "pytest", *arguments, *(str(TESTS / name) for name in names)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

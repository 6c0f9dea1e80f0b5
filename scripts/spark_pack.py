"""Pack what Spark's executors need of Python: Kafscale with its extra `spark`, and a virtual environment around it.

    python -m scripts.spark_pack                          dist/kafscale-spark.tar.gz
    python -m scripts.spark_pack --python /usr/bin/python3.11
    PYSPARK_PYTHON=./kafscale/bin/python spark-submit --archives dist/kafscale-spark.tar.gz#kafscale ...

The archive has no PySpark, which Spark brings itself, and no interpreter: `--python` names one that is at the same
path on every node. Versions and hashes are those of the export's image (deploy/spark/requirements.txt).
"""

import argparse
import gzip
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from scripts.build_dist import build, commit_time

PROJECT = Path(__file__).resolve().parent.parent
LOCK = PROJECT / "deploy" / "spark" / "requirements.txt"
OUTPUT = PROJECT / "dist" / "kafscale-spark.tar.gz"
_BROUGHT_BY_SPARK: Final = ("pyspark", "py4j")
_LIBRARIES_WITH_TESTS: Final = ("numba", "numpy", "pandas", "pyarrow")


class PackError(Exception):
    """A step failed; the message is its command and the end of its output."""


def locked_requirements(text: str) -> str:
    """The lock file without what Spark brings."""
    blocks = re.split(r"\n(?=\S)", text)
    kept = [one for one in blocks if one.partition("==")[0] not in _BROUGHT_BY_SPARK]
    return "\n".join(kept) + "\n"


def pack(python: str, output: Path) -> None:
    """Write the archive. Raises `PackError`."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafscale-pack-") as name:
        folder = Path(name)
        environment, requirements = folder / "environment", folder / "requirements.txt"
        requirements.write_text(locked_requirements(LOCK.read_text()))
        _, wheel = build(folder / "wheel", commit_time())
        _run("uv", "venv", "--quiet", "--relocatable", "--python", python, str(environment))
        install = ("uv", "pip", "install", "--quiet", "--python", str(environment / "bin" / "python"))
        _run(*install, "--only-binary", ":all:", "--require-hashes", "--requirement", str(requirements))
        _run(*install, "--no-deps", str(wheel))
        _slim(environment)
        # An executor unpacks it for each application and could not keep what it compiles.
        _run(
            str(environment / "bin" / "python"), "-m", "compileall", "-q", "-f", "--invalidation-mode",
            "unchecked-hash", str(environment / "lib"),
        )  # fmt: skip
        _write(environment, output)


def _slim(environment: Path) -> None:
    (packages,) = environment.glob("lib/python*/site-packages")
    for library in _LIBRARIES_WITH_TESTS:
        for tests in list((packages / library).rglob("tests")):
            shutil.rmtree(tests)
    shutil.rmtree(packages / "pyarrow" / "include")


def _write(environment: Path, output: Path) -> None:
    """Through another name, so that no half an archive is ever taken for a whole one."""
    staging = output.with_name(output.name + ".new")
    with (
        gzip.open(staging, "wb", compresslevel=4) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for path in sorted(environment.iterdir()):
            archive.add(path, path.name, filter=_of_nobody)
    staging.rename(output)


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _run(*command: str) -> None:
    path = Path(sys.executable).parent / command[0]
    done = subprocess.run(
        [str(path) if path.exists() else command[0], *command[1:]],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        last = (done.stdout + done.stderr).strip().splitlines()[-8:]
        raise PackError(
            f"`{' '.join(command[:4])}` ended with exit code {done.returncode}: {' | '.join(last)}"
        )


def main() -> int:
    """The command line. Exit status: 0 written, 1 a step failed."""
    parser = argparse.ArgumentParser(prog="spark_pack", description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"default: {OUTPUT.relative_to(PROJECT)}")
    parser.add_argument(
        "--python",
        default=getattr(sys, "_base_executable", sys.executable),
        help="the interpreter, by the path that it has on every node (default: the one that runs this)",
    )
    options = parser.parse_args()
    try:
        pack(options.python, options.output.absolute())
    except PackError as problem:
        print(f"spark_pack: {problem}", file=sys.stderr)
        return 1
    size_mb = options.output.stat().st_size / 1e6
    print(f"{options.output}: {size_mb:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())

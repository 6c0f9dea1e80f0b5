"""Build the sdist and the wheel, the same bytes from the same commit whenever and wherever they are built.

    python -m scripts.build_dist            into dist/
    python -m scripts.build_dist --dirty    also with changes that are not committed

The backend is the one of scripts/build-requirements.txt, by version and hash: its version stands in the wheel. The
wheel is built from the sdist. Times are those of the commit, or of SOURCE_DATE_EPOCH.
"""

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
REQUIREMENTS = PROJECT / "scripts" / "build-requirements.txt"
SOURCES = (
    *("pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE"),
    *("kafscale", "pyspark_kafscale", "spark_jobs"),
)
_FILE_MODE, _FOLDER_MODE = 0o644, 0o755


class BuildError(Exception):
    """The backend failed; the message is what it wrote."""


def build(target: Path, source_date_epoch: int) -> tuple[Path, Path]:
    """Build the files of the work tree; returns the sdist and the wheel in `target`. Raises `BuildError`."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "source", Path(folder) / "made"
        _copy_sources(source)
        _run_backend(["--sdist", str(source)], made, source_date_epoch)
        (unsorted,) = made.glob("*.tar.gz")
        sdist = target / unsorted.name
        _repack(unsorted, sdist, source_date_epoch)
        _run_backend(["--wheel", str(sdist)], made, source_date_epoch)
        (built,) = made.glob("*.whl")
        wheel = target / built.name
        shutil.copyfile(built, wheel)
    return sdist, wheel


def commit_time() -> int:
    """SOURCE_DATE_EPOCH or, without it, the time of the commit; seconds since 1970."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct"))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=PROJECT, check=True, capture_output=True, text=True).stdout


def _copy_sources(target: Path) -> None:
    """Files only, without those that git ignores: an older build or an editable install leave some."""
    listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", *SOURCES)
    for name in filter(None, listed.split("\0")):
        if (PROJECT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(PROJECT / name, target / name)


def _run_backend(what: list[str], target: Path, source_date_epoch: int) -> None:
    command = [
        str(Path(sys.executable).with_name("uv")),
        *("build", "--quiet", "--build-constraints", str(REQUIREMENTS), "--require-hashes"),
        *("--python", sys.executable, "--out-dir", str(target), *what),
    ]
    done = subprocess.run(
        command,
        check=False,
        env=os.environ | {"SOURCE_DATE_EPOCH": str(source_date_epoch)},
        umask=0o777 - _FOLDER_MODE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        raise BuildError(done.stderr)


def _repack(unsorted: Path, target: Path, source_date_epoch: int) -> None:
    """The same files in their names' order, with one time, one mode and no owner: setuptools takes the machine's."""
    with (
        tarfile.open(unsorted) as source,
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=source_date_epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as made,
    ):
        for member in sorted(source, key=lambda one: one.name):
            entry = tarfile.TarInfo(member.name)
            entry.type, entry.size, entry.mtime = member.type, member.size, source_date_epoch
            entry.mode = _FOLDER_MODE if member.isdir() else _FILE_MODE
            made.addfile(entry, source.extractfile(member))


def main() -> int:
    """Build into dist/."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dirty", action="store_true", help="with changes that are not committed")
    parser.add_argument("--target", type=Path, default=PROJECT / "dist", metavar="FOLDER")
    options = parser.parse_args()
    if not options.dirty and (changed := _git("status", "--porcelain")):
        print(f"not committed (or give --dirty):\n{changed}", end="", file=sys.stderr)
        return 1
    try:
        print(*build(options.target, commit_time()), sep="\n")
    except BuildError as problem:
        print(problem, end="", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

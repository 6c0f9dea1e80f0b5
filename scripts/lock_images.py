"""Write the lock files of the images: every package with its version and the hashes of its archives.

    python -m scripts.lock_images            the newest versions that pyproject.toml allows
    python -m scripts.lock_images --check    exit with 1 when a file no longer fits pyproject.toml

An image installs nothing that is not in its file (`pip install --require-hashes`).
"""

import argparse
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parent.parent
PYTHON = "3.11"
HEADER = "# Made by `make lock` of pyproject.toml: what the image installs, and the hashes it must have.\n"
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;\\]+)")


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock file and the extra of pyproject.toml that its image has."""

    path: Path
    extra: str

    def requirements(self) -> list[Requirement]:
        """The requirements of pyproject.toml that its packages have to satisfy."""
        project: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
        return [*map(Requirement, project["dependencies"]), *_of_extra(project, self.extra)]

    def pins(self) -> dict[str, str]:
        """Package (its canonical name) -> version."""
        return {canonicalize_name(name): version for name, version in _PIN.findall(self.path.read_text())}

    def problems(self) -> Iterator[str]:
        """Each requirement that the file does not satisfy, and each package without a hash, a line each."""
        pins = self.pins()
        for requirement in self.requirements():
            version = pins.get(canonicalize_name(requirement.name))
            if version is None or not requirement.specifier.contains(version):
                yield f"{self.path.relative_to(PROJECT)}: {requirement} has {version or 'nothing'}"
        for block in re.split(r"\n(?=\S)", self.path.read_text().removeprefix(HEADER)):
            if "--hash=sha256:" not in block:
                yield f"{self.path.relative_to(PROJECT)}: no hash: {block[:80]!r}"


LOCKS = (
    Lock(PROJECT / "deploy" / "requirements.txt", "operator"),
    Lock(PROJECT / "deploy" / "spark" / "requirements.txt", "spark"),
)


def _of_extra(project: dict[str, Any], extra: str) -> Iterator[Requirement]:
    """The requirements of an extra, and those of the project's extras that it names."""
    for requirement in map(Requirement, project["optional-dependencies"][extra]):
        if canonicalize_name(requirement.name) == canonicalize_name(project["name"]):
            for other in sorted(requirement.extras):
                yield from _of_extra(project, other)
        else:
            yield requirement


def write(lock: Lock) -> None:
    """Resolve again and write the file."""
    command = [
        str(Path(sys.executable).with_name("uv")),
        *("pip", "compile", "pyproject.toml", "--extra", lock.extra, "--generate-hashes"),
        *(
            "--python-version",
            PYTHON,
            "--python-platform",
            "linux",
            "--upgrade",
            "--no-header",
            "--no-annotate",
            "--quiet",
        ),
    ]
    done = subprocess.run(command, cwd=PROJECT, env=os.environ, check=True, capture_output=True, text=True)
    lock.path.write_text(HEADER + done.stdout)
    print(f"{lock.path.relative_to(PROJECT)}: {len(lock.pins())} packages")


def main() -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    if not parser.parse_args().check:
        for lock in LOCKS:
            write(lock)
    problems = [problem for lock in LOCKS for problem in lock.problems()]
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""Builds programs of a published Go module at a pinned version, whatever its own go.mod replaces."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.installing import CannotInstallError, ensure_command

PROGRESS_SECONDS = 15.0
_ENVIRONMENT = {"GOFLAGS": "", "GOWORK": "off", "CGO_ENABLED": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GoPrograms:
    """Commands of one module.

    `replaced_version` is the published version of what the module's go.mod replaces by folders of its own
    repository, which are not part of the published module. `variables` are set as the module's own release
    build sets them: the linker's -X.
    """

    module: str
    version: str
    packages: tuple[str, ...]  # import paths; the last element is the program's name
    replaced_version: str | None = None
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(package.rpartition("/")[2] for package in self.packages)

    @property
    def stamp(self) -> str:
        """A stamp that changes with everything that changes the programs."""
        return repr(self)


def build(programs: GoPrograms, folder: Path) -> None:
    """Build the programs into the folder, all or none. Prints its progress.

    `go install module@version` refuses a module whose go.mod has replacements. An empty module that requires it
    may say itself what replaces what, so nothing of the source is copied. Raises `CannotInstallError`.
    """
    ensure_command("go", package="golang-go")
    description = _download(programs)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as name:
        workplace = Path(name)
        (workplace / "go.mod").write_text(_wrapper(programs, description))
        built = workplace / "bin"
        built.mkdir()
        _compile(programs, workplace, built)
        for program in programs.names:
            (built / program).replace(folder / program)


def _download(programs: GoPrograms) -> dict[str, Any]:
    """Fetch the module; the content of its go.mod, as `go mod edit -json` gives it."""
    print(f"{programs.module} {programs.version}: downloading", flush=True)
    downloaded = json.loads(_go("mod", "download", "-json", f"{programs.module}@{programs.version}"))
    # An older Go does not even read the file.
    wanted = re.search(r"^go (\S+)", Path(downloaded["GoMod"]).read_text(), flags=re.MULTILINE)
    _check_go(wanted[1] if wanted else "1.0", programs.module)
    described: dict[str, Any] = json.loads(_go("mod", "edit", "-json", downloaded["GoMod"]))
    return described


def _check_go(wanted: str, module: str) -> None:
    found = _go("env", "GOVERSION").strip()
    if _numbers(found) < _numbers(wanted):
        raise CannotInstallError(f"{module} needs Go {wanted} or newer, and `go` on the PATH is {found}")


def _numbers(version: str) -> tuple[int, ...]:
    """1.24.0 and go1.24.0 are (1, 24, 0); the suffix of a development version is ignored."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _wrapper(programs: GoPrograms, description: dict[str, Any]) -> str:
    """The go.mod of the empty module."""
    lines = ["module wrapper", f"go {description.get('Go', '1.21')}"]
    lines += [f"godebug {each['Key']}={each['Value']}" for each in description.get("Godebug") or ()]
    lines.append(f"require {programs.module} {programs.version}")
    for replacement in description.get("Replace") or ():
        old, new = replacement["Old"]["Path"], replacement["New"]
        if new.get("Version"):
            lines.append(f"replace {old} => {new['Path']} {new['Version']}")
        elif programs.replaced_version:
            lines.append(f"replace {old} => {old} {programs.replaced_version}")
    return "\n".join(lines) + "\n"


def _compile(programs: GoPrograms, workplace: Path, built: Path) -> None:
    """`go build`, printing the number of compiled packages now and then."""
    flags = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in programs.variables)])
    command = ["go", "build", "-v", "-mod=mod", "-trimpath", f"-ldflags={flags}", "-o", f"{built}/"]
    names = " and ".join(programs.names)
    began = told = time.monotonic()
    last: list[str] = []
    compiled = 0
    print(f"{names}: compiling, which takes minutes the first time", flush=True)
    with subprocess.Popen(
        [*command, *programs.packages],
        cwd=workplace,
        env=os.environ | _ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = [*last[-7:], line.strip()]
            compiled += (
                " " not in line.strip()
            )  # a package's import path; all other output of Go is sentences
            if time.monotonic() - told > PROGRESS_SECONDS:
                told = time.monotonic()
                print(f"{names}: {compiled} packages compiled in {told - began:.0f} s", flush=True)
    if process.returncode != 0:
        raise CannotInstallError(
            f"`go build` of {names} ended with exit code {process.returncode}: {' | '.join(last)}"
        )
    print(f"{names}: built in {time.monotonic() - began:.0f} s", flush=True)


def _go(*arguments: str) -> str:
    """The output of a go command. Raises `CannotInstallError` with its error."""
    with tempfile.TemporaryDirectory() as elsewhere:  # no go.mod above it counts
        done = subprocess.run(
            ["go", *arguments],
            cwd=elsewhere,
            env=os.environ | _ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        said = " | ".join((done.stderr + done.stdout).strip().splitlines()[-8:])
        raise CannotInstallError(f"`go {' '.join(arguments)}` ended with exit code {done.returncode}: {said}")
    return done.stdout


def remove(folder: Path, programs: GoPrograms) -> None:
    """Delete programs of an older version."""
    for name in programs.names:
        (folder / name).unlink(missing_ok=True)
    for left in folder.glob("build-*"):  # of a build that was killed
        shutil.rmtree(left, ignore_errors=True)

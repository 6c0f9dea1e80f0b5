"""Common steps of every installer of test tools: run a command, fetch a Debian package, jars, build a Go program."""

import os
import shutil
import subprocess
import tempfile
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path

from kafscale.errors import StartupError
from spark_jobs.jar_set import OLDEST_JAVA, JarSet
from tests.support import tool_cache

TOOLS = Path(__file__).resolve().parents[2] / ".tools"


_apt = threading.Lock()  # apt-get refuses to run beside itself, and installers run in threads


class CannotInstallError(Exception):
    """This machine cannot install a tool; the message is the reason."""


def run_command(
    *command: str, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> None:
    """Raises `CannotInstallError` with the end of its output if it fails."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd=folder,
        env=None if environment is None else os.environ | dict(environment),
    )
    if done.returncode != 0:
        last = done.stdout.strip().splitlines()[-8:]
        raise CannotInstallError(f"`{command[0]}` ended with exit code {done.returncode}: {' | '.join(last)}")


def ensure_command(command: str, *, package: str) -> str:
    """Install a Debian package unless its command exists. Returns a summary."""
    if shutil.which(command):
        return "there already"
    if shutil.which("apt-get") is None:
        raise CannotInstallError(f"no {command} on the PATH and no apt-get here; install {command} by hand")
    if os.geteuid() != 0:
        raise CannotInstallError(
            f"no {command} on the PATH and not root; install the package {package} by hand"
        )
    with _apt:
        if shutil.which(command):
            return "there already"
        run_command("apt-get", "update", "--quiet")
        run_command("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", package)
    return "installed with apt-get"


def unpack_program(program: str, target: Path, *, package: str) -> None:
    """Take `/usr/bin/{program}` from a Debian package; the package is not installed, so no service starts.

    Raises `CannotInstallError`.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise CannotInstallError(f"no {program} on the PATH and no apt-get here; install {program} by hand")
    TOOLS.mkdir(exist_ok=True)
    with _apt, tempfile.TemporaryDirectory(dir=TOOLS) as name:
        folder = Path(name)
        # As the current user: apt's own user cannot write here.
        download = ("apt-get", "download", "--quiet", "--option", "APT::Sandbox::User=root", package)
        try:
            run_command(*download, folder=folder)
        except CannotInstallError:
            # On a fresh machine there are no lists of packages yet. Only root can fetch them.
            run_command("apt-get", "update", "--quiet")
            run_command(*download, folder=folder)
        archive = next(folder.glob("*.deb"))
        run_command("dpkg-deb", "--extract", str(archive), str(folder / "unpacked"))
        (folder / "unpacked" / "usr" / "bin" / program).rename(target)


def install_jars(jars: JarSet) -> str:
    """Fetch a pom's jars into their folder, and the Java for them. Returns a summary.

    With Maven, which takes ten seconds to find that it has them all; then they are kept for other checkouts.
    """
    if jars.paths():
        return "there already"
    ensure_command("java", package=f"openjdk-{OLDEST_JAVA}-jdk-headless")
    pom = jars.pom.read_text()
    jars.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jars.folder.parent) as name:
        archive, unpacked = Path(name, "jars.zip"), Path(name, "jars")
        if tool_cache.take([archive.name], pom, archive.parent):
            with zipfile.ZipFile(archive) as kept:
                kept.extractall(unpacked)
            shutil.rmtree(jars.folder, ignore_errors=True)
            unpacked.rename(jars.folder)
            return f"{len(jars.paths())} jars copied from the cache"
        ensure_command("mvn", package="maven")
        try:
            done = jars.fetch()
        except StartupError as error:
            raise CannotInstallError(str(error)) from error
        with zipfile.ZipFile(archive, "w") as kept:
            for path in jars.folder.iterdir():
                kept.write(path, path.name)
        tool_cache.keep([archive.name], pom, archive.parent)
    return done

"""Install what tests need beyond Python (Kafka's Java artifacts, kcat): `python -m tests.compat.tools`."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POM = Path(__file__).with_name("pom.xml")
TOOLS = ROOT / ".tools"
KAFKA_LIBS = TOOLS / "kafka-libs"
KAFKA_LIBS_STAMP = KAFKA_LIBS / ".pom-sha256"
OLDEST_JAVA = 17


class CannotInstallError(Exception):
    """This machine cannot get a tool; the message says why."""


def java_missing() -> str | None:
    """Why Java tests cannot run here, or None."""
    if shutil.which("java") is None:
        return f"no java on the PATH (a JDK of version {OLDEST_JAVA} or newer is needed)"
    if not _libs_current():
        return "Kafka's Java artifacts are not in .tools/kafka-libs (run `python -m tests.compat.tools`)"
    return None


def kcat_missing() -> str | None:
    """Why kcat tests cannot run here, or None."""
    return None if shutil.which("kcat") else "no kcat on the PATH (Debian package kcat)"


def install_kafka_libs() -> str:
    """Kafka's tools, clients and broker into `.tools/kafka-libs`, through Maven. Returns what was done."""
    if _libs_current():
        return "there already"
    _ensure_command("java", package=f"openjdk-{OLDEST_JAVA}-jdk-headless")
    _ensure_command("mvn", package="maven")
    staging = TOOLS / "kafka-libs.new"
    shutil.rmtree(staging, ignore_errors=True)
    _run(
        "mvn", "--quiet", "--batch-mode", "--file", str(POM), "dependency:copy-dependencies",
        f"-DoutputDirectory={staging}", "-DincludeScope=runtime",
    )  # fmt: skip
    (staging / KAFKA_LIBS_STAMP.name).write_text(_pom_digest())
    shutil.rmtree(KAFKA_LIBS, ignore_errors=True)
    staging.rename(KAFKA_LIBS)
    return f"{len(list(KAFKA_LIBS.glob('*.jar')))} jars fetched with Maven"


def install_kcat() -> str:
    """kcat from the machine's packages. Returns what was done."""
    return _ensure_command("kcat", package="kcat")


def _ensure_command(command: str, *, package: str) -> str:
    """Install a Debian package unless its command is there. Returns what was done."""
    if shutil.which(command):
        return "there already"
    if shutil.which("apt-get") is None:
        raise CannotInstallError(f"no {command} on the PATH and no apt-get here; install {command} by hand")
    if os.geteuid() != 0:
        raise CannotInstallError(
            f"no {command} on the PATH and not root; install the package {package} by hand"
        )
    _run("apt-get", "update", "--quiet")
    _run("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", package)
    return "installed with apt-get"


def main() -> int:
    """Install all; exit code 0 also where something cannot be had: its tests say so and are skipped."""
    TOOLS.mkdir(exist_ok=True)
    installers: dict[str, Callable[[], str]] = {
        "Kafka's Java artifacts": install_kafka_libs,
        "kcat": install_kcat,
    }
    with (TOOLS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name, install in installers.items():
            try:
                print(f"{name}: {install()}", flush=True)
            except CannotInstallError as error:
                print(f"{name}: not installed: {error}", flush=True)
    return 0


def _libs_current() -> bool:
    return KAFKA_LIBS_STAMP.exists() and KAFKA_LIBS_STAMP.read_text() == _pom_digest()


def _pom_digest() -> str:
    return hashlib.sha256(POM.read_bytes()).hexdigest()


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        last = done.stdout.strip().splitlines()[-8:]
        raise CannotInstallError(f"`{command[0]}` ended with exit code {done.returncode}: {' | '.join(last)}")


if __name__ == "__main__":
    sys.exit(main())

"""A folder of jars that Maven fetches from a pom, and the Java that runs them."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from kafscale.errors import StartupError

OLDEST_JAVA = 17
_STAMP = ".pom-sha256"
_NAMESPACE = "{http://maven.apache.org/POM/4.0.0}"
_SHOWN_LINES = 8


class MavenMissingError(StartupError):
    """There is no Maven on this machine."""


@dataclass(frozen=True, slots=True)
class JarSet:
    """The jars of a pom. Jars that were fetched for another version of the pom do not count."""

    pom: Path
    folder: Path

    def coordinates(self) -> tuple[str, ...]:
        """The pom's own dependencies as Spark takes them: group:artifact:version."""
        dependencies = ElementTree.parse(self.pom).iterfind(
            f"{_NAMESPACE}dependencies/{_NAMESPACE}dependency"
        )
        return tuple(
            ":".join(
                dependency.findtext(_NAMESPACE + name, "") for name in ("groupId", "artifactId", "version")
            )
            for dependency in dependencies
        )

    def paths(self) -> tuple[Path, ...]:
        """The jars by name; empty if they were not fetched, or for another pom."""
        return tuple(sorted(self.folder.glob("*.jar"))) if self._is_current() else ()

    def fetch(self) -> str:
        """Fetch the jars into the folder unless they are there. Returns a message for people.

        Raises `MavenMissingError`, and `StartupError` with the end of Maven's output when it fails.
        """
        if self._is_current():
            return "there already"
        if shutil.which("mvn") is None:
            raise MavenMissingError("no mvn on the PATH (Debian: apt-get install maven)")
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f"{self.folder.name}.", dir=self.folder.parent))
        try:
            staging.chmod(0o755)
            self._copy_dependencies(staging)
            (staging / _STAMP).write_text(self._digest())
            shutil.rmtree(self.folder, ignore_errors=True)
            staging.rename(self.folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        jars = self.paths()
        size_mb = sum(jar.stat().st_size for jar in jars) / 1e6
        return f"{len(jars)} {'jar' if len(jars) == 1 else 'jars'} ({size_mb:.0f} MB) fetched with Maven"

    def _copy_dependencies(self, target: Path) -> None:
        done = subprocess.run(
            [
                "mvn", "--quiet", "--batch-mode", "--file", str(self.pom), "dependency:copy-dependencies",
                f"-DoutputDirectory={target}", "-DincludeScope=runtime",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )  # fmt: skip
        if done.returncode != 0:
            last = " | ".join(done.stdout.strip().splitlines()[-_SHOWN_LINES:])
            raise StartupError(
                f"Maven could not fetch the jars of {self.pom} (exit code {done.returncode}): {last}"
            )

    def _is_current(self) -> bool:
        stamp = self.folder / _STAMP
        return stamp.exists() and stamp.read_text() == self._digest()

    def _digest(self) -> str:
        return hashlib.sha256(self.pom.read_bytes()).hexdigest()


def check_java(environment: Mapping[str, str] = os.environ) -> None:
    """Raise `StartupError` unless the Java that Spark would start is new enough for it."""
    home = environment.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    needed = f"Spark needs Java {OLDEST_JAVA} or newer"
    remedy = f"install it (Debian: openjdk-{OLDEST_JAVA}-jre-headless) or set JAVA_HOME to where it is"
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, env=dict(environment)
        )
    except OSError:
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on the PATH"
        raise StartupError(f"{needed}, and {where}: {remedy}") from None
    version = java_version(told.stderr + told.stdout)
    if version is None:
        raise StartupError(f"{needed}, and `{java} -version` does not tell its version: {remedy}")
    if version < OLDEST_JAVA:
        raise StartupError(f"{needed}, and {java} is Java {version}: {remedy}")


def java_version(told: str) -> int | None:
    """The feature release in the output of `java -version` ("1.8.0" is 8); None if there is none."""
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return None if found is None else int(found[1])

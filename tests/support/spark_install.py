"""Jars that only the tests of the lake export need, fetched with Maven into `.tools/spark-libs`."""

import hashlib
import shutil
from pathlib import Path

from tests.support.installing import TOOLS, ensure_command, run_command

_TESTS = Path(__file__).resolve().parents[1]
POMS = (_TESTS / "spark_jobs/pom.xml", _TESTS.parent / "spark_jobs/pom.xml")
SPARK_LIBS = TOOLS / "spark-libs"
STAMP = SPARK_LIBS / ".pom-sha256"
OLDEST_JAVA = 17


def spark_libs_missing() -> str | None:
    """Why tests with Spark cannot run here, or None."""
    if shutil.which("java") is None:
        return f"no java on the PATH (a JDK of version {OLDEST_JAVA} or newer is needed)"
    if not _is_current():
        return "the jars for Spark's tests are not in .tools/spark-libs (run `python -m tests.compat.tools`)"
    return None


def spark_libs() -> list[Path]:
    """The jars, in a fixed order."""
    return sorted(SPARK_LIBS.glob("*.jar"))


def install_spark_libs() -> str:
    """Fetch the jars. Returns what was done. Raises `CannotInstallError`."""
    if _is_current():
        return "there already"
    ensure_command("java", package=f"openjdk-{OLDEST_JAVA}-jdk-headless")
    ensure_command("mvn", package="maven")
    staging = TOOLS / "spark-libs.new"
    shutil.rmtree(staging, ignore_errors=True)
    for pom in POMS:
        run_command(
            "mvn", "--quiet", "--batch-mode", "--file", str(pom), "dependency:copy-dependencies",
            f"-DoutputDirectory={staging}", "-DincludeScope=runtime", "-DexcludeTransitive=true",
        )  # fmt: skip
    (staging / STAMP.name).write_text(_digest())
    shutil.rmtree(SPARK_LIBS, ignore_errors=True)
    staging.rename(SPARK_LIBS)
    return f"{len(spark_libs())} jars fetched with Maven"


def _is_current() -> bool:
    return STAMP.exists() and STAMP.read_text() == _digest()


def _digest() -> str:
    return hashlib.sha256(b"".join(pom.read_bytes() for pom in POMS)).hexdigest()

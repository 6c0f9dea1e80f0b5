"""The jars of the lake export's tests: Iceberg's, where the job itself finds them, and those of the tests alone."""

import shutil
from pathlib import Path

from spark_jobs.iceberg_jars import ICEBERG
from spark_jobs.jar_set import OLDEST_JAVA, JarSet
from tests.support.installing import TOOLS, install_jars

TEST_JARS = JarSet(Path(__file__).resolve().parents[1] / "spark_jobs/pom.xml", TOOLS / "spark-test-jars")


def spark_libs_missing() -> str | None:
    """The reason why tests with Spark cannot run here, or None."""
    if shutil.which("java") is None:
        return f"no java on the PATH (a JDK of version {OLDEST_JAVA} or newer is needed)"
    for jars in (ICEBERG, TEST_JARS):
        if not jars.paths():
            return f"the jars for Spark's tests are not in {jars.folder} (run `python -m tests.compat.tools`)"
    return None


def spark_libs() -> list[Path]:
    """The jars, in a fixed order."""
    return sorted((*ICEBERG.paths(), *TEST_JARS.paths()))


def install_spark_libs() -> str:
    """Fetch the jars. Returns a summary. Raises `CannotInstallError`."""
    done = [install_jars(jars) for jars in (ICEBERG, TEST_JARS)]
    return ", ".join(dict.fromkeys(done))

"""The jars of the lake export's tests: Iceberg's, where the job itself finds them, and those of the tests alone."""

import shutil
from pathlib import Path

from spark_jobs.iceberg_jars import ICEBERG
from spark_jobs.jar_set import OLDEST_JAVA, JarSet
from tests.support.installing import TOOLS, install_jars

_TESTS = Path(__file__).resolve().parents[1] / "spark_jobs"
TEST_JARS = JarSet(_TESTS / "pom.xml", TOOLS / "spark-test-jars")
CATALOG_JARS = JarSet(_TESTS / "catalogs-pom.xml", TOOLS / "spark-catalog-jars")
"""Without these only the test that needs them is skipped."""


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
    return sorted((*ICEBERG.paths(), *TEST_JARS.paths(), *CATALOG_JARS.paths()))


def install_spark_libs() -> str:
    """Fetch the jars. Returns a summary. Raises `CannotInstallError`."""
    done = [install_jars(jars) for jars in (ICEBERG, TEST_JARS, CATALOG_JARS)]
    return ", ".join(dict.fromkeys(done))

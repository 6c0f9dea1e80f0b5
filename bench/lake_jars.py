"""The jars of the lake benchmark: Spark's own Kafka source (pom.xml beside this file) and Iceberg's."""

from pathlib import Path

from spark_jobs.jar_set import JarSet
from spark_jobs.jars import ICEBERG

_FOLDER = Path(__file__).resolve().parent
KAFKA_SOURCE = JarSet(_FOLDER / "pom.xml", _FOLDER.parent / ".tools" / "spark-kafka-jars")


def lake_jars() -> tuple[str, ...]:
    """The paths of all jars; Maven fetches missing ones first. Raises `StartupError`."""
    KAFKA_SOURCE.fetch()
    ICEBERG.fetch()
    runtime = [jar for jar in ICEBERG.paths() if jar.name.startswith("iceberg-spark-runtime")]
    return tuple(str(jar) for jar in (*KAFKA_SOURCE.paths(), *runtime))

"""One Spark session in a process of its own: a `SessionSpec` on stdin, then a read or a digest on each line."""

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.lake_prepared import PreparedSource
from bench.lake_specs import ICEBERG, Cost, Digest, ReadSpec, SessionSpec
from bench.process import process_cpu, process_tree_cpu, process_tree_cpu_with_ended
from spark_jobs.source.data_source import register

_TABLE = "bench.db.records"


def open_session(spec: SessionSpec) -> SparkSession:
    """The same settings for every read: Spark's defaults but for memory, folders, and noise."""
    folder = Path(spec.folder)
    settings = {
        "spark.jars": ",".join(spec.jars),
        "spark.driver.memory": spec.memory,
        "spark.driver.extraJavaOptions": f"-XX:-UsePerfData -Djava.io.tmpdir={folder}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "sql-warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.catalog.bench": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.bench.type": "hadoop",
        "spark.sql.catalog.bench.warehouse": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(f"local[{spec.cores}]").appName("kafscale-bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.dataSource.register(PreparedSource)
    register(session)
    return session


class Reads:
    """The reads of one session, each timed with the CPU of all processes that take part."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._reads = 0
        gateway = SparkContext._gateway
        assert gateway is not None
        self._jvm_pid: int = gateway.proc.pid

    def read(self, spec: ReadSpec) -> Cost:
        """Raises Spark's errors."""
        self._reads += 1
        group = f"read-{self._reads}"
        self._session.sparkContext.setJobGroup(group, spec.source)
        if spec.sink == ICEBERG:
            self._load(spec).limit(0).writeTo(_TABLE).create()
        jvm, everything, broker = self._cpu(spec)
        began = time.perf_counter()
        frame = self._load(spec)
        if spec.sink == ICEBERG:
            frame.writeTo(_TABLE).append()
        else:
            frame.write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - began
        jvm_after, everything_after, broker_after = self._cpu(spec)
        if spec.sink == ICEBERG:
            self._session.sql(f"DROP TABLE {_TABLE} PURGE")
        jvm_seconds = jvm_after - jvm
        return Cost(
            seconds=seconds,
            tasks=self._tasks(group),
            jvm_seconds=jvm_seconds,
            python_seconds=everything_after - everything - jvm_seconds,
            broker_seconds=broker_after - broker,
        )

    def digest(self, spec: ReadSpec) -> Digest:
        """A hash of everything that is equal for two brokers: all but the timestamps."""
        found = (
            self._load(spec)
            .select(f.xxhash64("topic", "partition", "offset", "key", "value", "headers").alias("hash"))
            .agg(f.count("*").alias("rows"), f.bit_xor("hash").alias("hash"))
            .first()
        )
        assert found is not None
        return Digest(rows=found["rows"], hash=found["hash"] or 0)

    def _load(self, spec: ReadSpec) -> DataFrame:
        return self._session.read.format(spec.source).options(**spec.options).load()

    def _cpu(self, spec: ReadSpec) -> tuple[float, float, float]:
        """CPU of the JVM, of this process with its descendants, and of the broker, in seconds."""
        broker = process_tree_cpu(spec.broker_pid).total if spec.broker_pid else 0.0
        return process_cpu(self._jvm_pid).total, process_tree_cpu_with_ended(os.getpid()).total, broker

    def _tasks(self, group: str) -> int:
        """The tasks of the largest job: the others create the table, or commit."""
        tracker = self._session.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return max((stage.numTasks for stage in stages if stage is not None), default=0)


def main() -> None:
    """Entry point of the process. All other output of it and of Spark goes to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    opened = json.loads(sys.stdin.readline())
    session = open_session(SessionSpec(**{**opened, "jars": tuple(opened["jars"])}))
    reads = Reads(session)
    answers.write("{}\n")
    for line in sys.stdin:
        asked = json.loads(line)
        spec = ReadSpec(**asked["spec"])
        answer = reads.digest(spec) if asked["do"] == "digest" else reads.read(spec)
        answers.write(json.dumps(dataclasses.asdict(answer)) + "\n")
    session.stop()


if __name__ == "__main__":
    main()

"""The progress of a batch's Spark jobs, polled every few seconds while they run."""

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from kafscale.lake.events import ExportEvents
from spark_jobs.job.spark_errors import SPARK_ERRORS

_logger = logging.getLogger(__name__)

POLL_SEC: Final = 2.0

_EXECUTIONS_LOOKED_AT: Final = 8
"""Of the newest; a batch has fewer."""

_GROUP_PROPERTIES: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")

_SCAN: Final = "BatchScan"
_ROWS: Final = "number of output rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """The progress of the jobs of a group. `rows`: read so far by the query that has read most.

    Executors report running tasks with their heartbeats (spark.executor.heartbeatInterval, 10 s), so `rows` is that
    much late.
    """

    tasks: int = 0
    tasks_done: int = 0
    tasks_failed: int = 0
    rows: int = 0


def read_job_progress(spark: SparkSession, group: str) -> JobProgress:
    """Of the jobs that any thread started in the job group. Raises `Py4JError` if Spark is gone."""
    tracker = spark.sparkContext.statusTracker()
    jobs = set(tracker.getJobIdsForGroup(group))
    infos = [info for job in jobs if (info := tracker.getJobInfo(job)) is not None]
    ids = {stage for info in infos for stage in info.stageIds}
    stages = [stage for stage_id in ids if (stage := tracker.getStageInfo(stage_id)) is not None]
    return JobProgress(
        tasks=sum(stage.numTasks for stage in stages),
        tasks_done=sum(stage.numCompletedTasks for stage in stages),
        tasks_failed=sum(stage.numFailedTasks for stage in stages),
        rows=_rows_scanned(spark, jobs) if jobs else 0,
    )


def _rows_scanned(spark: SparkSession, jobs: set[int]) -> int:
    """By the query that has read most: if a batch is read once for each table, each query counts all rows."""
    store = spark._jsparkSession.sharedState().statusStore()
    count = store.executionsCount()
    executions = store.executionsList(max(0, count - _EXECUTIONS_LOOKED_AT), _EXECUTIONS_LOOKED_AT)
    most = 0
    for index in range(executions.size()):
        execution = executions.apply(index)
        if any(execution.jobs().contains(job) for job in jobs):
            most = max(most, _rows_of(store, execution.executionId()))
    return most


def _rows_of(store: Any, execution_id: int) -> int:
    values = store.executionMetrics(execution_id)
    nodes = store.planGraph(execution_id).allNodes()
    rows = 0
    for index in range(nodes.size()):
        node = nodes.apply(index)
        if not node.name().startswith(_SCAN):
            continue
        metrics = node.metrics()
        for place in range(metrics.size()):
            metric = metrics.apply(place)
            # Spark stores the value as it displays it: "1,234,567".
            shown = values.get(metric.accumulatorId()) if metric.name() == _ROWS else None
            if shown is not None and shown.isDefined():
                rows += int(shown.get().replace(",", ""))
    return rows


@contextmanager
def watched(
    spark: SparkSession, description: str, tell: Callable[[JobProgress], None], poll_sec: float = POLL_SEC
) -> Iterator[str]:
    """Call `tell`, in another thread, with the progress of Spark jobs that this thread starts; yields their group.

    Best-effort: a failure to poll is logged once.
    """
    context = spark.sparkContext
    group = f"kafscale-{uuid.uuid4().hex}"
    before = {name: context.getLocalProperty(name) for name in _GROUP_PROPERTIES}
    context.setJobGroup(group, description)
    ended = threading.Event()

    def poll() -> None:
        try:
            while not ended.wait(poll_sec):
                progress = read_job_progress(spark, group)
                if progress.tasks and not ended.is_set():
                    tell(progress)
        except SPARK_ERRORS as error:
            _logger.warning(
                "Spark does not tell how far it is", extra={"job": description, "error": str(error)}
            )

    thread = threading.Thread(target=poll, name=f"progress of {description}", daemon=True)
    thread.start()
    try:
        yield group
    finally:
        ended.set()
        thread.join()
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type]


@contextmanager
def reported_while_running(
    spark: SparkSession, events: ExportEvents, topic: str, poll_sec: float = POLL_SEC
) -> Iterator[str]:
    """`watched`, for the batch of an export that this thread writes within."""

    def tell(progress: JobProgress) -> None:
        events.tasks_done(topic, progress.tasks_done, progress.tasks)
        events.rows_read(topic, progress.rows)

    with watched(spark, f"export of topic {topic}", tell, poll_sec) as group:
        yield group

"""A KafscaleExport's status: what its topics have reached, bounded in size, and the verdict. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from kafscale.operator import cluster_resources
from kafscale.operator.exports.progress import TopicProgress
from kafscale.operator.resource_status import Phase, Verdict
from kafscale.operator.schema.export_status import (
    MAX_ERROR_CHARACTERS,
    MAX_PARTITIONS,
    MAX_TOPICS,
    properties,
)

_FIELDS: Final = frozenset(properties())
_NAMED: Final = 3


class Reason(StrEnum):
    """The condition's reason. docs/kubernetes-exports.md says what to do about each."""

    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    TOPICS_FAILED = "TopicsFailed"
    RUN_FAILED = "RunFailed"
    PODS_NOT_READY = "PodsNotReady"
    NAME_TAKEN = "NameTaken"
    INVALID_SPEC = cluster_resources.INVALID_SPEC
    CLUSTER_NOT_FOUND = cluster_resources.CLUSTER_NOT_FOUND
    CLUSTER_INVALID = cluster_resources.CLUSTER_INVALID
    CLUSTER_BEING_DELETED = cluster_resources.CLUSTER_BEING_DELETED
    SECRET_MISSING = cluster_resources.SECRET_MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The status fields of a pass; those of the one before stay while the cluster cannot be read."""

    of_status: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def before(cls, status: Mapping[str, Any]) -> "Known":
        """As the status has them."""
        return cls(of_status={name: value for name, value in status.items() if name in _FIELDS})

    @classmethod
    def seen(cls, workload: Mapping[str, Any], topics: Sequence[TopicProgress]) -> "Known":
        """`workload`: the CronJob or Deployment as it is."""
        listed = sorted(topics, key=lambda one: (not one.is_failed, -one.lag, one.topic))[:MAX_TOPICS]
        progress = [one.progress for one in topics if one.progress is not None]
        complete = [one.complete_ms for one in progress]
        fields: dict[str, Any] = {
            "workload": f"{workload['kind']}/{workload['metadata']['name']}",
            "topicCount": len(topics),
            "failedTopics": sum(one.is_failed for one in topics),
            "lag": sum(one.lag for one in topics),
            "rows": sum(one.rows for one in progress),
            "deadLetters": sum(one.dead_letters for one in progress),
            "topics": [_topic_fields(one) for one in listed],
            "omittedTopics": len(topics) - len(listed),
        }
        for name in ("lastScheduleTime", "lastSuccessfulTime"):
            if name in workload.get("status", {}):
                fields[name] = workload["status"][name]
        if progress:
            fields["lastCommitTime"] = _instant(max(one.updated_ms for one in progress))
        if len(progress) == len(topics) and complete and None not in complete:
            fields["completeTime"] = _instant(min(one for one in complete if one is not None))
        return cls(of_status=fields)

    def fields(self) -> dict[str, Any]:
        """The status fields."""
        return dict(self.of_status)


def _topic_fields(one: TopicProgress) -> dict[str, Any]:
    fields: dict[str, Any] = {"topic": one.topic, "table": one.table}
    progress = one.progress
    if one.error:
        fields["error"] = _cut(one.error)
    if progress is None:
        return fields | {"state": "failed" if one.is_failed else "waiting"}
    fields |= {
        "state": "failed" if one.is_failed else progress.state.value,
        "lag": one.lag,
        "rows": progress.rows,
        "deadLetters": progress.dead_letters,
        "lastCommitTime": _instant(progress.updated_ms),
        "partitionCount": len(progress.positions),
        "partitions": [
            {
                "partition": partition,
                "nextOffset": progress.positions[partition],
                "logEndOffset": one.log_end(partition),
            }
            for partition, _ in sorted(one.lags.items(), key=lambda pair: (-pair[1], pair[0]))[
                :MAX_PARTITIONS
            ]
        ],
    }
    if progress.complete_ms is not None:
        fields["completeTime"] = _instant(progress.complete_ms)
    return fields


def verdict(workload: Mapping[str, Any], topics: Sequence[TopicProgress], problems: Sequence[str]) -> Verdict:
    """The verdict on an export whose objects are as declared. `problems`: of its pods."""
    failed = [one for one in topics if one.is_failed]
    if problems:
        return _verdict(Phase.PENDING, Reason.PODS_NOT_READY, "; ".join(problems[:_NAMED]))
    if failed:
        named = "; ".join(f"{one.topic}: {_cut(one.error)}" for one in failed[:_NAMED])
        more = f"; and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
        return _verdict(Phase.FAILED, Reason.TOPICS_FAILED, f"{named}{more}")
    if workload["kind"] == "Deployment":
        return _of_deployment(workload, topics)
    return _of_cron_job(workload, topics)


def _of_deployment(workload: Mapping[str, Any], topics: Sequence[TopicProgress]) -> Verdict:
    if not workload["spec"].get("replicas", 1):
        return _verdict(Phase.READY, Reason.SUSPENDED, "suspend is true")
    if not workload.get("status", {}).get("readyReplicas"):
        return _verdict(Phase.PENDING, Reason.PODS_NOT_READY, "the pod is not ready yet")
    return _verdict(Phase.READY, Reason.RUNNING, f"exports {_count(topics)} continuously")


def _of_cron_job(workload: Mapping[str, Any], topics: Sequence[TopicProgress]) -> Verdict:
    if workload["spec"].get("suspend"):
        return _verdict(Phase.READY, Reason.SUSPENDED, "suspend is true")
    status = workload.get("status", {})
    started, succeeded = status.get("lastScheduleTime"), status.get("lastSuccessfulTime")
    if started is not None and not status.get("active") and (succeeded is None or succeeded < started):
        return _verdict(
            Phase.FAILED,
            Reason.RUN_FAILED,
            f"the run of {started} has not succeeded: look at the log of its pod; the next run goes on",
        )
    return _verdict(Phase.READY, Reason.SCHEDULED, f"exports {_count(topics)} on schedule")


def _count(topics: Sequence[TopicProgress]) -> str:
    return f"{len(topics)} topic{'s' * (len(topics) != 1)}"


def _verdict(phase: Phase, reason: Reason, message: str) -> Verdict:
    return Verdict(phase=phase, reason=reason, message=message)


def _cut(error: str) -> str:
    return error if len(error) <= MAX_ERROR_CHARACTERS else error[: MAX_ERROR_CHARACTERS - 1] + "…"


def _instant(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

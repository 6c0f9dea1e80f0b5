"""Takes snapshots of clusters' metadata when they are due, and reports them in status and metrics."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from kafscale.errors import KafscaleError
from kafscale.operator.backups.metrics import BackupMetrics
from kafscale.operator.backups.plan import (
    FIRST_RETRY_SEC,
    BackupRecord,
    retry_sec,
    seconds_until_due,
    time_text,
)
from kafscale.operator.backups.runner import BackupOutcome
from kafscale.operator.cluster_part import PartApi, StatusShare, wanted_part
from kafscale.operator.cluster_spec import Backups, ClusterSpec
from kafscale.operator.conditions import Condition
from kafscale.operator.errors import LeadershipLostError, SpecError
from kafscale.operator.times import Schedule
from kafscale.tools.backup.snapshots import NothingToBackUpError

logger = logging.getLogger(__name__)

CONDITION: Final = "BackedUp"
SHARE: Final = StatusShare(
    manager="kafscale-operator-backup", types=frozenset({CONDITION}), fields=("backup",)
)
AGAIN_SEC: Final = 300.0
"""Longest interval between passes."""

ATTEMPT_SEC: Final = 900.0
"""Time limit of one snapshot."""

_FAILED: Final = ("SnapshotFailed", "ClusterNotStarted")
_BAD: Final = ("SnapshotFailed", "InvalidSchedule", "OldSnapshotsStay")

Take = Callable[[ClusterSpec, Backups], Awaitable[BackupOutcome]]
"""`BackupRunner.take`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """Result of a pass. `again_sec`: when the next one is worthwhile."""

    record: BackupRecord
    condition: Condition
    again_sec: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pause:
    """Backoff after a failure: no attempt before `until` for the specification of that generation."""

    outcome: _Outcome
    until: float
    generation: int


class BackupReconciler:
    """Reconciles every cluster's backups. In memory are only the failures in a row and the backoff.

    `now`: aware. `clock`: monotonic seconds.
    """

    def __init__(
        self,
        api: PartApi,
        take: Take,
        metrics: BackupMetrics,
        now: Callable[[], datetime],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._take = take
        self._metrics = metrics
        self._now = now
        self._clock = clock
        self._failures: dict[tuple[str, str], int] = {}
        self._paused: dict[tuple[str, str], _Pause] = {}

    async def reconcile(self, namespace: str, name: str) -> float:
        """One pass; returns the seconds until the next. Raises `KubeError`."""
        found = await wanted_part(
            self._api, namespace, name, choose=lambda spec: spec.backups, share=SHARE, forget=self.forget
        )
        if found is None:
            return AGAIN_SEC
        resource, cluster, backups = found
        record = BackupRecord.of_status(resource.get("status", {}))
        self._metrics.show(namespace, name, record.last_success, record.size_bytes)
        outcome = await self._unless_paused(resource, cluster, backups, record)
        self._metrics.show(namespace, name, outcome.record.last_success, outcome.record.size_bytes)
        await SHARE.write(
            self._api,
            resource,
            [outcome.condition],
            self._now(),
            fields={"backup": outcome.record.as_map()},
            is_warning=lambda condition: condition.reason in _BAD,
        )
        return min(outcome.again_sec, AGAIN_SEC)

    async def _unless_paused(
        self, resource: Mapping[str, Any], cluster: ClusterSpec, backups: Backups, record: BackupRecord
    ) -> _Outcome:
        """Repeats the last result during backoff, unless the specification changed."""
        key, generation = (cluster.namespace, cluster.name), resource["metadata"]["generation"]
        pause = self._paused.get(key)
        if pause is not None and pause.generation == generation and self._clock() < pause.until:
            return replace(pause.outcome, again_sec=pause.until - self._clock())
        self._paused.pop(key, None)
        outcome = await self._bring_forward(cluster, backups, record)
        if outcome.condition.reason in _FAILED:
            until = self._clock() + outcome.again_sec
            self._paused[key] = _Pause(outcome=outcome, until=until, generation=generation)
        return outcome

    async def _bring_forward(self, cluster: ClusterSpec, backups: Backups, record: BackupRecord) -> _Outcome:
        if backups.suspend:
            message = f"spec.backups.suspend is true: no snapshots are taken. {_newest(record)}"
            return _outcome(record, False, "Suspended", message, AGAIN_SEC)
        try:
            schedule = Schedule.parse("spec.backups.schedule", backups.schedule)
        except SpecError as problem:
            return _outcome(record, False, "InvalidSchedule", str(problem), AGAIN_SEC)
        wait_sec = seconds_until_due(schedule, record, self._now())
        if wait_sec > 0:
            return _outcome(record, True, "SnapshotTaken", _newest(record), wait_sec)
        return await self._attempt(cluster, backups, record, schedule)

    async def _attempt(
        self, cluster: ClusterSpec, backups: Backups, record: BackupRecord, schedule: Schedule
    ) -> _Outcome:
        key = (cluster.namespace, cluster.name)
        began, started = self._now(), self._clock()
        attempted = replace(record, last_attempt=began)
        try:
            async with asyncio.timeout(ATTEMPT_SEC):
                backup = await self._take(cluster, backups)
        except LeadershipLostError:
            raise
        except NothingToBackUpError as problem:
            if record.last_success is None:
                message = "No broker has started yet: the first snapshot is taken once one has."
                return _outcome(record, False, "ClusterNotStarted", message, FIRST_RETRY_SEC)
            return self._failed(key, attempted, problem, self._clock() - started)
        except TimeoutError:
            why = f"it took longer than {ATTEMPT_SEC:.0f} s"
            return self._failed(key, attempted, why, self._clock() - started)
        except (KafscaleError, SpecError, OSError) as problem:
            return self._failed(key, attempted, problem, self._clock() - started)
        self._failures.pop(key, None)
        self._metrics.attempted(*key, self._clock() - started, failed=False)
        record = _record_of(backup, began)
        logger.info("took snapshot %s of %s/%s", record.key, *key)
        wait_sec = seconds_until_due(schedule, record, self._now())
        if backup.problem is None:
            return _outcome(record, True, "SnapshotTaken", _newest(record), wait_sec)
        message = f"{_newest(record)} Old ones could not be removed: {backup.problem}"
        return _outcome(record, True, "OldSnapshotsStay", message, wait_sec)

    def _failed(
        self, key: tuple[str, str], record: BackupRecord, why: object, duration_sec: float
    ) -> _Outcome:
        self._failures[key] = self._failures.get(key, 0) + 1
        self._metrics.attempted(*key, duration_sec, failed=True)
        logger.warning("a snapshot of %s/%s failed: %s", *key, why)
        message = f"The snapshot failed: {why}. {_newest(record)}"
        return _outcome(record, False, "SnapshotFailed", message, retry_sec(self._failures[key]))

    def forget(self, namespace: str, name: str) -> None:
        """Drops a cluster that is deleted or has no backups."""
        self._metrics.forget(namespace, name)
        self._failures.pop((namespace, name), None)
        self._paused.pop((namespace, name), None)


def _outcome(record: BackupRecord, is_so: bool, reason: str, message: str, again_sec: float) -> _Outcome:
    condition = Condition(type=CONDITION, is_so=is_so, reason=reason, message=message)
    return _Outcome(record=record, condition=condition, again_sec=again_sec)


def _record_of(outcome: BackupOutcome, began: datetime) -> BackupRecord:
    """`began`: the snapshot contains every write before it."""
    taken = outcome.taken
    return BackupRecord(
        last_success=began,
        last_attempt=began,
        key=taken.stored.key,
        revision=taken.header.revision,
        size_bytes=taken.stored.size_bytes,
        sha256=taken.sha256,
    )


def _newest(record: BackupRecord) -> str:
    if record.last_success is None:
        return "There is no snapshot."
    return f"The newest snapshot is {record.key}, taken at {time_text(record.last_success)}."

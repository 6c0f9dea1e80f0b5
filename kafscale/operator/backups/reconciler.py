"""Keeps a cluster's backups fresh: takes a snapshot when one is due, and tells how it went in status and metrics."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Protocol

from kafscale.errors import KafscaleError
from kafscale.operator import conditions
from kafscale.operator.backups.metrics import BackupMetrics
from kafscale.operator.backups.plan import (
    FIRST_RETRY_SEC,
    BackupRecord,
    retry_sec,
    seconds_until_due,
    time_text,
)
from kafscale.operator.backups.runner import BackupOutcome
from kafscale.operator.cluster_spec import Backups, ClusterSpec, cluster_spec
from kafscale.operator.conditions import Condition
from kafscale.operator.errors import LeadershipLostError, SpecError
from kafscale.operator.kube.kinds import CLUSTER, Kind
from kafscale.operator.schedule import Schedule
from kafscale.tools.backup.snapshots import NothingToBackUpError

logger = logging.getLogger(__name__)

FIELD_MANAGER: Final = "kafscale-operator-backup"
"""Who owns `status.backup` and the condition."""

CONDITION: Final = "BackedUp"
AGAIN_SEC: Final = 300.0
"""After so long a pass is made anyway."""

ATTEMPT_SEC: Final = 900.0
"""How long one snapshot may take."""

_FAILED: Final = ("SnapshotFailed", "ClusterNotStarted")
_BAD: Final = ("SnapshotFailed", "InvalidSchedule", "OldSnapshotsStay")

Take = Callable[[ClusterSpec, Backups], Awaitable[BackupOutcome]]
"""`BackupRunner.take`."""


class BackupApi(Protocol):
    """What is needed of `KubeClient`."""

    async def find(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any] | None:
        """One object, or None."""

    async def apply_status(
        self, kind: Kind, namespace: str, name: str, status: Mapping[str, Any], *, field_manager: str
    ) -> dict[str, Any]:
        """The part of the status that the manager owns."""

    async def event(self, about: Mapping[str, Any], reason: str, message: str, *, warning: bool) -> None:
        """Tell it to who looks at the object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What a pass came to. `again_sec`: after so long the next one is worth it."""

    record: BackupRecord
    condition: Condition
    again_sec: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pause:
    """A failure, after which nothing is tried before `until` with the specification of that generation."""

    told: _Told
    until: float
    generation: int


class BackupReconciler:
    """For every cluster. In memory it keeps only how often each failed in a row, and when it is tried again.

    `now`: aware. `clock`: seconds that only go forward.
    """

    def __init__(
        self,
        api: BackupApi,
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
        """One pass; returns after how many seconds to look again. Raises `KubeError`."""
        resource = await self._api.find(CLUSTER, namespace, name)
        if resource is None or resource["metadata"].get("deletionTimestamp"):
            self.forget(namespace, name)
            return AGAIN_SEC
        try:
            cluster = cluster_spec(name, namespace, resource["spec"])
        except SpecError:
            return AGAIN_SEC  # the cluster's own conditions say so
        if cluster.backups is None:
            self.forget(namespace, name)
            await self._take_back(resource)
            return AGAIN_SEC
        record = BackupRecord.of_status(resource.get("status", {}))
        self._metrics.show(namespace, name, record.last_success, record.size_bytes)
        told = await self._unless_paused(resource, cluster, cluster.backups, record)
        self._metrics.show(namespace, name, told.record.last_success, told.record.size_bytes)
        await self._tell(resource, told)
        return min(told.again_sec, AGAIN_SEC)

    async def _unless_paused(
        self, resource: Mapping[str, Any], cluster: ClusterSpec, backups: Backups, record: BackupRecord
    ) -> _Told:
        """What failed is left alone for its time, whatever wakes us, unless the specification changed."""
        key, generation = (cluster.namespace, cluster.name), resource["metadata"]["generation"]
        pause = self._paused.get(key)
        if pause is not None and pause.generation == generation and self._clock() < pause.until:
            return replace(pause.told, again_sec=pause.until - self._clock())
        self._paused.pop(key, None)
        told = await self._bring_forward(cluster, backups, record)
        if told.condition.reason in _FAILED:
            until = self._clock() + told.again_sec
            self._paused[key] = _Pause(told=told, until=until, generation=generation)
        return told

    async def _bring_forward(self, cluster: ClusterSpec, backups: Backups, record: BackupRecord) -> _Told:
        if backups.suspend:
            message = f"spec.backups.suspend is true: no snapshots are taken. {_newest(record)}"
            return _told(record, False, "Suspended", message, AGAIN_SEC)
        try:
            schedule = Schedule.parse("spec.backups.schedule", backups.schedule)
        except SpecError as problem:
            return _told(record, False, "InvalidSchedule", str(problem), AGAIN_SEC)
        wait_sec = seconds_until_due(schedule, record, self._now())
        if wait_sec > 0:
            return _told(record, True, "SnapshotTaken", _newest(record), wait_sec)
        return await self._attempt(cluster, backups, record, schedule)

    async def _attempt(
        self, cluster: ClusterSpec, backups: Backups, record: BackupRecord, schedule: Schedule
    ) -> _Told:
        key = (cluster.namespace, cluster.name)
        began, started = self._now(), self._clock()
        attempted = replace(record, last_attempt=began)
        try:
            async with asyncio.timeout(ATTEMPT_SEC):
                outcome = await self._take(cluster, backups)
        except LeadershipLostError:
            raise
        except NothingToBackUpError as problem:
            if record.last_success is None:
                message = "No broker has started yet: the first snapshot is taken once one has."
                return _told(record, False, "ClusterNotStarted", message, FIRST_RETRY_SEC)
            return self._failed(key, attempted, problem, self._clock() - started)
        except TimeoutError:
            why = f"it took longer than {ATTEMPT_SEC:.0f} s"
            return self._failed(key, attempted, why, self._clock() - started)
        except (KafscaleError, SpecError, OSError) as problem:
            return self._failed(key, attempted, problem, self._clock() - started)
        self._failures.pop(key, None)
        self._metrics.attempted(*key, self._clock() - started, failed=False)
        record = _record_of(outcome, began)
        logger.info("took snapshot %s of %s/%s", record.key, *key)
        wait_sec = seconds_until_due(schedule, record, self._now())
        if outcome.problem is None:
            return _told(record, True, "SnapshotTaken", _newest(record), wait_sec)
        message = f"{_newest(record)} Old ones could not be removed: {outcome.problem}"
        return _told(record, True, "OldSnapshotsStay", message, wait_sec)

    def _failed(self, key: tuple[str, str], record: BackupRecord, why: object, duration_sec: float) -> _Told:
        self._failures[key] = self._failures.get(key, 0) + 1
        self._metrics.attempted(*key, duration_sec, failed=True)
        logger.warning("a snapshot of %s/%s failed: %s", *key, why)
        message = f"The snapshot failed: {why}. {_newest(record)}"
        return _told(record, False, "SnapshotFailed", message, retry_sec(self._failures[key]))

    async def _tell(self, resource: Mapping[str, Any], told: _Told) -> None:
        """The status where it differs, and an event where the condition turned."""
        metadata, before = resource["metadata"], resource.get("status", {})
        held = before.get("conditions", [])
        wanted = conditions.merged(held, [told.condition], metadata["generation"], self._now())
        backup = told.record.as_map()
        if before.get("backup", {}) != backup or conditions.find(held, CONDITION) != wanted[0]:
            status = {"backup": backup, "conditions": wanted}
            await self._apply(metadata, status)
        for condition in conditions.changed(held, [told.condition]):
            is_bad = condition.reason in _BAD
            await self._api.event(resource, condition.reason, condition.message, warning=is_bad)

    async def _take_back(self, resource: Mapping[str, Any]) -> None:
        """There are no backups: nothing is told of them any more."""
        status = resource.get("status", {})
        if "backup" in status or conditions.find(status.get("conditions", ()), CONDITION) is not None:
            await self._apply(resource["metadata"], {})

    async def _apply(self, metadata: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        await self._api.apply_status(
            CLUSTER, metadata["namespace"], metadata["name"], status, field_manager=FIELD_MANAGER
        )

    def forget(self, namespace: str, name: str) -> None:
        """The cluster is gone, or has no backups."""
        self._metrics.forget(namespace, name)
        self._failures.pop((namespace, name), None)
        self._paused.pop((namespace, name), None)


def _told(record: BackupRecord, is_so: bool, reason: str, message: str, again_sec: float) -> _Told:
    condition = Condition(type=CONDITION, is_so=is_so, reason=reason, message=message)
    return _Told(record=record, condition=condition, again_sec=again_sec)


def _record_of(outcome: BackupOutcome, began: datetime) -> BackupRecord:
    """`began`: the snapshot shows at least what there was then."""
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

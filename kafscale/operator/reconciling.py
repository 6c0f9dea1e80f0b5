"""The reconcile loop of every part: one pass over one resource at a time, repeated whenever something changes.

kopf watches, runs a daemon per resource, and keeps a finalizer where a part has work to do before the resource is
deleted. A pass reads the actual state, decides, and applies. It keeps no state in memory that matters, so it may be
interrupted anywhere and is repeated.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import kopf
from prometheus_client import CollectorRegistry

from kafscale.errors import KafscaleError
from kafscale.operator import api_names
from kafscale.operator.errors import LeadershipLostError
from kafscale.operator.kube.client import KubeClient
from kafscale.operator.kube.kinds import CLUSTER, Kind
from kafscale.operator.operator_metrics import OperatorMetrics
from kafscale.operator.stores.cluster_connections import ClusterConnections

_logger = logging.getLogger(__name__)

Pass = Callable[[str, str], Awaitable[float]]
"""Given namespace and name, reconciles one resource; returns the seconds until the next pass without a wake-up.

Any exception is logged and the pass is retried with backoff.
"""

Finish = Callable[[str, str], Awaitable[bool]]
"""Cleans up before a resource is deleted; returns True once done. Called until then."""

Forget = Callable[[str, str], None]
"""Drops what is remembered and exported of a deleted resource."""

Relevant = Callable[[Mapping[str, Any]], object]
"""Given a resource, the part of its state whose change deserves a pass."""


def requested_state(resource: Mapping[str, Any]) -> object:
    """All but the status: a part that woke on its own status would never rest if that has measurements."""
    metadata = resource["metadata"]
    names = ("uid", "generation", "deletionTimestamp", "finalizers", "annotations")
    return [metadata.get(name) for name in names]


# Changes come in bursts; one pass covers several.
SETTLE_SEC = 0.1
FIRST_RETRY_SEC = 1.0
LAST_RETRY_SEC = 60.0
# Between two calls of a part's `Finish`.
FINISH_POLL_SEC = 1.0


class Wakers:
    """Wakes the loops that reconcile a resource."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str, str], set[tuple[str, asyncio.Event]]] = defaultdict(set)

    @contextlib.contextmanager
    def waiting(self, kind: Kind, namespace: str, name: str, part: str) -> Iterator[asyncio.Event]:
        """An event that `wake` sets, for the duration of the block."""
        key, event = (kind.plural, namespace, name), asyncio.Event()
        self._waiting[key].add((part, event))
        try:
            yield event
        finally:
            self._waiting[key].discard((part, event))
            if not self._waiting[key]:
                del self._waiting[key]

    def wake(self, kind: Kind, namespace: str, name: str, part: str | None = None) -> None:
        """Starts a pass of the resource soon: of that part, or of every part if None."""
        for waits, event in self._waiting.get((kind.plural, namespace, name), ()):
            if part in (None, waits):
                event.set()


class Changes:
    """Tells new states from repeated ones in a watch's events."""

    def __init__(self, relevant: Relevant) -> None:
        self._heeds = relevant
        self._known: dict[tuple[str, str], object] = {}

    def is_new(self, event_type: str | None, resource: Mapping[str, Any]) -> bool:
        """True if the relevant state differs from the last event's. `event_type`: the watch's."""
        key = resource["metadata"]["namespace"], resource["metadata"]["name"]
        if event_type == "DELETED":
            self._known.pop(key, None)
            return True
        before, now = self._known.get(key), self._heeds(resource)
        self._known[key] = now
        return now != before


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Shared by every part. `image`, `etcd_image`: of brokers and etcd members, where the cluster names none.

    `connections`: to the clusters' metadata stores. `own_role_buckets`: see `open_objects`.
    """

    kube: KubeClient
    connections: ClusterConnections
    image: str
    etcd_image: str
    wakers: Wakers
    metrics: CollectorRegistry
    own_metrics: OperatorMetrics
    own_role_buckets: Sequence[str] = ()


def reconciled(
    registry: kopf.OperatorRegistry,
    operator: Operator,
    kind: Kind,
    part: str,
    reconcile: Pass,
    finish: Finish | None = None,
    forget: Forget | None = None,
    relevant: Relevant = requested_state,
) -> None:
    """Reconciles every resource of the kind: at start, when it changes, when woken, and periodically.

    `part`: its name in the log, unique per kind. `finish`: for at most one part per kind. `relevant`: which changes
    count. Passes of one part over one resource never overlap.
    """
    metrics, changes = operator.own_metrics, Changes(relevant)
    metrics.add_part(part)

    @kopf.on.event(group=api_names.GROUP, plural=kind.plural, id=f"{part}-seen", registry=registry)
    async def seen(event: kopf.RawEvent, **about: Any) -> None:
        namespace, name = about["namespace"], about["name"]
        if changes.is_new(event["type"], event["object"]):
            operator.wakers.wake(kind, namespace, name, part)
        if forget is not None and event["type"] == "DELETED":  # also if its finalizer was removed by force
            forget(namespace, name)

    @kopf.daemon(
        group=api_names.GROUP,
        plural=kind.plural,
        id=part,
        registry=registry,
        backoff=5,
        cancellation_timeout=10,
    )
    async def keep(**event: Any) -> None:
        namespace, name = event["namespace"], event["name"]
        with operator.wakers.waiting(kind, namespace, name, part) as woken:
            await repeat_passes(part, namespace, name, reconcile, woken, metrics)

    if finish is None:
        return

    @kopf.on.delete(group=api_names.GROUP, plural=kind.plural, id=f"{part}-finish", registry=registry)
    async def leave(**event: Any) -> None:
        namespace, name = event["namespace"], event["name"]
        await repeat_finish(part, namespace, name, finish, metrics)


def watched(registry: kopf.OperatorRegistry, operator: Operator, owned: Kind) -> None:
    """Wakes a cluster's loops when one of its objects of that kind changes; objects are found by their labels."""
    group = owned.api_version.rpartition("/")[0]

    @kopf.on.event(
        group=group,
        plural=owned.plural,
        id=f"{owned.plural}-seen",
        labels={api_names.MANAGED_BY: api_names.FIELD_MANAGER, api_names.INSTANCE: kopf.PRESENT},
        registry=registry,
    )
    async def seen(**event: Any) -> None:
        operator.wakers.wake(CLUSTER, event["namespace"], event["labels"][api_names.INSTANCE])


async def repeat_passes(
    part: str, namespace: str, name: str, reconcile: Pass, woken: asyncio.Event, metrics: OperatorMetrics
) -> None:
    """Repeats passes over one resource until cancelled."""
    retry_sec = FIRST_RETRY_SEC
    while True:
        woken.clear()
        try:
            again_sec = await reconcile(namespace, name)
            retry_sec = FIRST_RETRY_SEC
            metrics.passed(part)
        except LeadershipLostError:
            raise
        except Exception as error:  # noqa: BLE001 - a failed pass must not end the loop
            _log_failure(f"{part} {namespace}/{name}", error, retry_sec)
            metrics.passed(part, failed=True)
            again_sec, retry_sec = retry_sec, min(LAST_RETRY_SEC, retry_sec * 2)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(again_sec):
                await woken.wait()
        await asyncio.sleep(SETTLE_SEC)


async def repeat_finish(
    part: str, namespace: str, name: str, finish: Finish, metrics: OperatorMetrics
) -> None:
    """Repeats `finish` until it is done."""
    retry_sec = FIRST_RETRY_SEC
    while True:
        try:
            is_done = await finish(namespace, name)
            metrics.passed(part)
            if is_done:
                return
            await asyncio.sleep(FINISH_POLL_SEC)
            retry_sec = FIRST_RETRY_SEC
        except LeadershipLostError:
            raise
        except Exception as error:  # noqa: BLE001 - the resource must stay until cleanup is done
            _log_failure(f"{part} {namespace}/{name}", error, retry_sec)
            metrics.passed(part, failed=True)
            await asyncio.sleep(retry_sec)
            retry_sec = min(LAST_RETRY_SEC, retry_sec * 2)


def _log_failure(what: str, error: Exception, retry_sec: float) -> None:
    """Logs expected errors in one line, and others with their traceback."""
    expected = isinstance(error, KafscaleError)
    _logger.warning("%s: %s; again in %.0f s", what, error, retry_sec, exc_info=None if expected else error)

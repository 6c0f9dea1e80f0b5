"""How every part of the operator works: one pass over one resource at a time, again whenever something happens.

kopf watches, keeps a daemon for each resource, and holds a finalizer where a part has something to do before the
resource may go. A pass reads what there is, decides, and applies; it keeps nothing in memory that matters, so it
may be cut off anywhere and is simply done again.
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

_logger = logging.getLogger(__name__)

Pass = Callable[[str, str], Awaitable[float]]
"""Given namespace and name, brings one resource forward; returns after how many seconds to look again anyway.

Any exception is logged and the pass is tried again, later each time.
"""

Finish = Callable[[str, str], Awaitable[bool]]
"""Does what is to be done before a resource goes; returns whether all is done. Called again until it is."""

Forget = Callable[[str, str], None]
"""The resource is gone: nothing is to be kept or shown of it."""

Relevant = Callable[[Mapping[str, Any]], object]
"""Given a resource, what of it is worth a pass when it becomes another."""


def requested_state(resource: Mapping[str, Any]) -> object:
    """All but the status. A part that its own words woke would never rest where they hold what it measures."""
    metadata = resource["metadata"]
    names = ("uid", "generation", "deletionTimestamp", "finalizers", "annotations")
    return [metadata.get(name) for name in names]


# Changes come in bursts; one pass answers several.
SETTLE_SEC = 0.1
FIRST_RETRY_SEC = 1.0
LAST_RETRY_SEC = 60.0
# Between two looks whether a resource may go.
FINISH_POLL_SEC = 1.0


class Wakers:
    """Wakes those who reconcile a resource."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str, str], set[tuple[str, asyncio.Event]]] = defaultdict(set)

    @contextlib.contextmanager
    def waiting(self, kind: Kind, namespace: str, name: str, part: str) -> Iterator[asyncio.Event]:
        """An event that is set by `wake`, for the time of the block."""
        key, event = (kind.plural, namespace, name), asyncio.Event()
        self._waiting[key].add((part, event))
        try:
            yield event
        finally:
            self._waiting[key].discard((part, event))
            if not self._waiting[key]:
                del self._waiting[key]

    def wake(self, kind: Kind, namespace: str, name: str, part: str | None = None) -> None:
        """That part, None: every part that looks after the resource, makes a pass soon."""
        for waits, event in self._waiting.get((kind.plural, namespace, name), ()):
            if part in (None, waits):
                event.set()


class Changes:
    """Which of the events of resources bring something new."""

    def __init__(self, relevant: Relevant) -> None:
        self._heeds = relevant
        self._known: dict[tuple[str, str], object] = {}

    def is_new(self, event_type: str | None, resource: Mapping[str, Any]) -> bool:
        """Whether something that is heeded is another than in the last event. `event_type`: as of a watch."""
        key = resource["metadata"]["namespace"], resource["metadata"]["name"]
        if event_type == "DELETED":
            self._known.pop(key, None)
            return True
        before, now = self._known.get(key), self._heeds(resource)
        self._known[key] = now
        return now != before


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """What every part works with. `image`: of brokers, where the cluster names none; `etcd_image`: the same.

    `own_role_buckets`: see `open_objects`.
    """

    kube: KubeClient
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
    """Make passes over every resource of the kind: at once, when it changes, when woken, and by the clock.

    `part`: a word for the log, different for each part that looks after the same kind. `finish`: only for one of
    them. `relevant`: which changes count. Passes of one part over one resource never overlap.
    """
    metrics, changes = operator.own_metrics, Changes(relevant)
    metrics.add_part(part)

    @kopf.on.event(group=api_names.GROUP, plural=kind.plural, id=f"{part}-seen", registry=registry)
    async def seen(event: kopf.RawEvent, **about: Any) -> None:
        namespace, name = about["namespace"], about["name"]
        if changes.is_new(event["type"], event["object"]):
            operator.wakers.wake(kind, namespace, name, part)
        if forget is not None and event["type"] == "DELETED":  # also of one that lost its finalizer by force
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
    """Wake those who look after a cluster when one of its objects of that kind changes; by the objects' labels."""
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
    """Pass after pass over one resource, until it is cancelled."""
    retry_sec = FIRST_RETRY_SEC
    while True:
        woken.clear()
        try:
            again_sec = await reconcile(namespace, name)
            retry_sec = FIRST_RETRY_SEC
            metrics.passed(part)
        except LeadershipLostError:
            raise
        except Exception as error:  # noqa: BLE001 - one resource's trouble must not end the care for it
            _log_failure(f"{part} {namespace}/{name}", error, retry_sec)
            metrics.passed(part, failed=True)
            again_sec, retry_sec = retry_sec, min(LAST_RETRY_SEC, retry_sec * 2)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(woken.wait(), again_sec)
        await asyncio.sleep(SETTLE_SEC)


async def repeat_finish(
    part: str, namespace: str, name: str, finish: Finish, metrics: OperatorMetrics
) -> None:
    """Return when all is done."""
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
        except Exception as error:  # noqa: BLE001 - a resource may not go before all is done
            _log_failure(f"{part} {namespace}/{name}", error, retry_sec)
            metrics.passed(part, failed=True)
            await asyncio.sleep(retry_sec)
            retry_sec = min(LAST_RETRY_SEC, retry_sec * 2)


def _log_failure(what: str, error: Exception, retry_sec: float) -> None:
    """What is expected now and then in one line, what nobody thought of with its traceback."""
    expected = isinstance(error, KafscaleError)
    _logger.warning("%s: %s; again in %.0f s", what, error, retry_sec, exc_info=None if expected else error)

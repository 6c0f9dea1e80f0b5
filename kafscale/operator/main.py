"""The operator's process. One of several replicas leads, and only the leader works."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import kopf
from prometheus_client import CollectorRegistry, ProcessCollector

from kafscale.operator import api_names
from kafscale.operator.backups import handlers as backup_handlers
from kafscale.operator.clusters import handlers as cluster_handlers
from kafscale.operator.errors import KubeRefusedError
from kafscale.operator.etcd import handlers as etcd_handlers
from kafscale.operator.exports import handlers as export_handlers
from kafscale.operator.kube.access import KubeAccess, find_access
from kafscale.operator.kube.client import KubeClient
from kafscale.operator.kube.kinds import CLUSTER, EXPORT, TOPIC, USER
from kafscale.operator.leading.driver import ElectionDriver
from kafscale.operator.operator_metrics import OperatorMetrics
from kafscale.operator.pages import Pages
from kafscale.operator.reconciling import Operator, Wakers
from kafscale.operator.stores.cluster_connections import ClusterConnections
from kafscale.operator.stores.metadata_access import secret_reader
from kafscale.operator.topics import handlers as topic_handlers
from kafscale.operator.users import handlers as user_handlers

_logger = logging.getLogger(__name__)

PARTS: Sequence[Callable[[kopf.OperatorRegistry, Operator], None]] = (
    cluster_handlers.register,
    topic_handlers.register,
    user_handlers.register,
    export_handlers.register,
    backup_handlers.register,
    etcd_handlers.register,
)
"""The operator's parts. Each registers its handlers."""

EXIT_STOPPED = 0
EXIT_LOST = 1

_CRD_POLL_SEC = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the operator runs. `namespaces`: the ones it watches, empty: all. `own_role_buckets`: see `open_objects`.

    `lease_namespace` None: the operator's own. `metrics_addr`: host and port of its pages; None: not served.
    """

    image: str
    etcd_image: str
    namespaces: Sequence[str] = ()
    own_role_buckets: Sequence[str] = ()
    lease_name: str = api_names.FIELD_MANAGER
    lease_namespace: str | None = None
    metrics_addr: tuple[str, int] | None = None


def run(options: Options, environment: Mapping[str, str] = os.environ) -> int:
    """Runs until a signal or until leadership is lost; returns the exit status. Raises `KafscaleError`."""
    return asyncio.run(_run(options, find_access(environment)))


async def _run(options: Options, access: KubeAccess) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        kube = await stack.enter_async_context(KubeClient(access))
        identity = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        lease_namespace = options.lease_namespace or access.namespace
        election = ElectionDriver(kube, lease_namespace, options.lease_name, identity)
        metrics = CollectorRegistry()
        ProcessCollector(registry=metrics)
        guarded = kube.guarded(election.leads)
        operator = Operator(
            kube=guarded,
            connections=ClusterConnections(secret_reader(guarded), time.monotonic, guarded.check_may_write),
            image=options.image,
            etcd_image=options.etcd_image,
            own_role_buckets=options.own_role_buckets,
            wakers=Wakers(),
            metrics=metrics,
            own_metrics=OperatorMetrics(metrics),
        )
        # Before the election: an operator that cannot work must not become leader.
        handlers = registry(operator)
        stack.push_async_callback(election.resign)
        electing = asyncio.create_task(election.run(), name="election")
        stack.push_async_callback(_cancel, electing)
        if options.metrics_addr is not None:
            pages = Pages(metrics, lambda: "the election has ended" if electing.done() else None)
            stack.push_async_callback(pages.stop)
            port = await pages.start(*options.metrics_addr)
            _logger.info("metrics and health on port %d", port)
        _logger.info("%s stands by", identity)
        if not await _happens_first(stop.wait(), election.wait_until(True)):
            return EXIT_STOPPED
        return await _work(options, operator, handlers, election, stop)


async def _work(
    options: Options,
    operator: Operator,
    handlers: kopf.OperatorRegistry,
    election: ElectionDriver,
    stop: asyncio.Event,
) -> int:
    """Works until a signal or until leadership is lost; then the process has to restart."""
    if not await _happens_first(stop.wait(), _wait_for_definitions(operator.kube)):
        return EXIT_STOPPED
    operator.own_metrics.set_leading(True)
    ended = asyncio.Event()
    watching = asyncio.create_task(_set_when(ended, election.wait_until(False)), name="leadership")
    stopping = asyncio.create_task(_set_when(ended, stop.wait()), name="stopping")
    try:
        await kopf.operator(
            registry=handlers,
            settings=settings(),
            standalone=True,
            clusterwide=not options.namespaces,
            namespaces=list(options.namespaces),
            stop_flag=ended,
        )
    finally:
        lost = not election.leads()
        await _cancel(watching)
        await _cancel(stopping)
    if lost:
        _logger.error("leadership is lost: this process exits, and stands by when it is restarted")
        return EXIT_LOST
    return EXIT_STOPPED


def registry(operator: Operator) -> kopf.OperatorRegistry:
    """Every part's handlers, and kopf's login."""
    found = kopf.OperatorRegistry()
    access = operator.kube.access

    @kopf.on.login(registry=found)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return access.login()  # kopf asks again when the API refuses the token

    for register in PARTS:
        register(found, operator)
    return found


class _NoDiffBase(kopf.DiffBaseStorage):
    """kopf's record of the last handled state, switched off: each pass compares actual and desired state."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


def settings() -> kopf.OperatorSettings:
    """kopf's settings: it needs no rights beyond those in use, and writes nothing but its finalizer."""
    found = kopf.OperatorSettings()
    found.persistence.finalizer = api_names.FINALIZER
    found.persistence.diffbase_storage = _NoDiffBase()
    found.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=api_names.GROUP)
    found.posting.enabled = False
    found.scanning.disabled = True
    # A silent watch may be dead: start a new one.
    found.watching.server_timeout = 240
    found.watching.client_timeout = 270
    found.watching.connect_timeout = 5
    return found


async def _wait_for_definitions(kube: KubeClient) -> None:
    """Waits until the custom resources are served: the chart's hooks may install them after this process starts."""
    for kind in (CLUSTER, TOPIC, USER, EXPORT):
        while True:
            try:
                served = await kube.request("GET", f"/apis/{kind.api_version}")
                if any(each["name"] == kind.plural for each in served["resources"]):
                    break
            except KubeRefusedError as refusal:
                if refusal.status != HTTPStatus.NOT_FOUND:
                    raise
            _logger.warning("%s is not defined: install the chart's custom resource definitions", kind.kind)
            await asyncio.sleep(_CRD_POLL_SEC)


async def _happens_first(unwanted: Any, wanted: Any) -> bool:
    """True if `wanted` completes before `unwanted`; cancels both."""
    tasks = [asyncio.create_task(unwanted), asyncio.create_task(wanted)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            return False
        await tasks[1]
        return True
    finally:
        for task in tasks:
            await _cancel(task)


async def _set_when(event: asyncio.Event, happened: Any) -> None:
    await happened
    event.set()


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

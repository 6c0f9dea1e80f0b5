"""Runs a broker: signals, the admin server, the stores, and the broker between its start and its stop."""

import asyncio
import contextlib
import gc
import logging
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import version

from kafscale.broker import event_loop
from kafscale.broker.parts import BasicParts
from kafscale.broker.process import EXIT_STOPPED, BrokerProcess
from kafscale.broker.stores import open_hedge, open_replica, open_stores, request_meters, whereabouts
from kafscale.clocks import steady_ms
from kafscale.objects.request_meter import unshared
from kafscale.ops.health import Health, loop_probe
from kafscale.ops.http import AdminServer
from kafscale.ops.metrics import Metrics
from kafscale.ops.metrics_token import MetricsToken
from kafscale.ops.start_progress import StartProgress
from kafscale.pages.site import Site
from kafscale.settings.broker import Settings
from kafscale.settings.kinds import Address

logger = logging.getLogger(__name__)

# The stores' threads wake from every system call into a contest with the event loop, which a busy loop wins for
# the whole interval, again and again: at Python's 5 ms one durable write can take seconds (decision 0005).
THREAD_SWITCH_INTERVAL_SEC = 0.0001

# Waiting requests are what a collection finds, and not garbage: at Python's thresholds (700, 10, 10) looking
# through them again and again was a quarter of a small request's CPU (docs/profile.md).
COLLECTOR_THRESHOLDS = (50_000, 10, 10)


Prepare = Callable[[Health], Awaitable[Settings]]
"""Finds out what the settings leave open, while health is served already."""


def run(settings: Settings, prepare: Prepare | None = None) -> int:
    """Serve until a signal arrives; returns the exit status. Raises `StartupError`, and what `prepare` raises.

    The broker runs with the settings that `prepare` gives; where metrics are served and what is logged does not
    change any more.
    """
    sys.setswitchinterval(THREAD_SWITCH_INTERVAL_SEC)
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    return event_loop.run(_serve(settings, prepare))


async def _serve(settings: Settings, prepare: Prepare | None) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    event_loop.on_stop_signal(loop, stop.set)
    metrics = Metrics(broker_id=settings.broker_id, version=version("kafscale"))
    health = Health()
    health.add_liveness_check("event_loop", loop_probe(loop))
    token_file = settings.metrics_token_file
    token = None if token_file is None else MetricsToken(token_file)
    site = None
    if settings.admin_page:
        site = Site(settings, metrics, health, loop, token=token, places=whereabouts(settings))
    admin = AdminServer(metrics, health, token=token, pages=site)
    admin_port = admin.start(settings.metrics_addr.host, settings.metrics_addr.port)
    url = f"http://{Address(settings.metrics_addr.host, admin_port)}"
    logger.info("metrics and health are served", extra={"url": url})
    try:
        if prepare is not None:
            prepared = await _unless(stop, prepare(health))
            if prepared is None:
                return EXIT_STOPPED
            settings = prepared
        records, metadata_place = whereabouts(settings)
        logger.info("data is kept", extra={"records": records, "metadata": metadata_place})
        async with contextlib.AsyncExitStack() as stack:
            start = StartProgress(steady_ms)
            health.set_starting(start.reason)
            with start.step("opening the stores"):
                meters = request_meters(settings, metrics)
                metadata, objects = await open_stores(settings, stack, meters)
            replica = open_replica(settings, stack, meters.records if meters else None)
            hedge, shared = open_hedge(settings), meters.shared if meters else unshared
            parts = BasicParts(settings, metrics, health, metadata, objects, replica, hedge, start, shared)
            process = BrokerProcess(parts)
            if site is not None:
                site.open(process.shown)
            return await process.run(stop)
    finally:
        if site is not None:
            site.close()
        admin.stop()


async def _unless(stop: asyncio.Event, work: Awaitable[Settings]) -> Settings | None:
    """The result of the work; None when `stop` is set before."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.create_task(stop.wait(), name="stop signal")
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)

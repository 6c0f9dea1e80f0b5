"""Runs a broker: signals, the admin server, the stores, and the broker between its start and its stop."""

import asyncio
import contextlib
import logging
import signal
import sys
from importlib.metadata import version

import uvloop

from kafscale.broker_process import BrokerProcess
from kafscale.ops.health import Health
from kafscale.ops.http import AdminServer
from kafscale.ops.loop_probe import loop_probe
from kafscale.ops.metrics import Metrics
from kafscale.setting_kinds import Address
from kafscale.settings import Settings
from kafscale.stores import open_replica, open_stores

logger = logging.getLogger(__name__)

# The stores' threads wake from every system call into a contest with the event loop, which a busy loop wins for
# the whole interval, again and again: at Python's 5 ms one durable write can take seconds (decision 0005).
THREAD_SWITCH_INTERVAL_SEC = 0.0001


def run(settings: Settings) -> int:
    """Serve until told to stop; returns the exit status. Raises `StartupError`."""
    sys.setswitchinterval(THREAD_SWITCH_INTERVAL_SEC)
    return uvloop.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics = Metrics(broker_id=settings.broker_id, version=version("kafscale"))
    health = Health()
    health.add_liveness_check("event_loop", loop_probe(loop))
    admin = AdminServer(metrics, health)
    admin_port = admin.start(settings.metrics_addr.host, settings.metrics_addr.port)
    logger.info("metrics and health", extra={"address": str(Address(settings.metrics_addr.host, admin_port))})
    try:
        async with contextlib.AsyncExitStack() as stack:
            metadata, objects = await open_stores(settings, stack)
            replica = open_replica(settings, stack)
            process = BrokerProcess(settings, metrics, health, metadata, objects, replica)
            return await process.run(stop)
    finally:
        admin.stop()

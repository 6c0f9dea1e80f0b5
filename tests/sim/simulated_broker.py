"""A real `BrokerProcess` as a simulated process: its own clocks, randomness and ways to the stores."""

import asyncio
import contextlib
import logging
import random
import traceback
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast
from unittest import mock

from kafscale import clocks
from kafscale.broker import parts as broker_parts
from kafscale.broker.parts import BasicParts
from kafscale.broker.process import BrokerProcess
from kafscale.broker.stores import hedged_percent
from kafscale.clocks import Clocks
from kafscale.cluster.cluster_record import new_kafka_uuid
from kafscale.cluster.view import ClusterView
from kafscale.log import checkpointer, partition_log
from kafscale.log.compaction.cleaning_work import CleaningInProcess
from kafscale.log.life import merge_planner, removals
from kafscale.log.manager import LogManager
from kafscale.log.writing import flush_pacer, flusher, record_writer
from kafscale.metadata.shared_writes import TRANSACTIONS_AT_ONCE
from kafscale.metadata.store import MetadataStore
from kafscale.objects import health as object_store_health
from kafscale.objects.hedging import Hedge
from kafscale.objects.object_store import ObjectStore
from kafscale.ops.health import Health
from kafscale.ops.metrics import Metrics
from kafscale.settings.broker import Settings
from tests.sim.links import Link
from tests.sim.process_loop import Process, current_process
from tests.sim.simulated_connection import SimulatedListener
from tests.sim.simulated_metadata import LinkedMetadata
from tests.sim.simulated_objects import LinkedObjects
from tests.sim.trace import Trace
from tests.support.group_shards import with_group_shards

START_MS = 1_700_000_000_000


@dataclass(slots=True, kw_only=True)
class Clock:
    """A process's clocks: virtual time, and how far its wall clock is off."""

    skew_ms: int = 0

    def now_ms(self) -> int:
        """Unix milliseconds."""
        return START_MS + self.steady_ms() + self.skew_ms

    @staticmethod
    def steady_ms() -> int:
        """Milliseconds of a clock that only goes forward."""
        return int(asyncio.get_running_loop().time() * 1000)


class BrokerSideProcess(Process):
    """A process with a clock and randomness of its own."""

    def __init__(self, name: str, clock: Clock, rng: random.Random) -> None:
        super().__init__(name)
        self.clock = clock
        self.rng = rng


class SimulatedBroker:
    """One run of one broker, from its start to its end or death."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        clock: Clock,
        rng: random.Random,
        metadata: tuple[LinkedMetadata, Link],
        objects: tuple[LinkedObjects, Link],
        trace: Trace,
    ) -> None:
        self.name = name
        self.broker_id = settings.broker_id
        self.settings = settings
        self.clock = clock
        self.process = BrokerSideProcess(name, clock, rng)
        self.listener: SimulatedListener | None = None
        self.is_dead = False
        self.is_ending = False
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._metadata, self.metadata_link = metadata
        self._objects, self.objects_link = objects
        self._trace = trace
        self._stop = asyncio.Event()
        self._broker: BrokerProcess | None = None
        self._task = self.process.run(self._run(), f"broker {name}")

    async def _run(self) -> None:
        basics = BasicParts(
            self.settings,
            Metrics(broker_id=self.broker_id, version="sim"),
            Health(),
            cast(MetadataStore, self._metadata),
            cast(ObjectStore, self._objects),
            hedge=Hedge(hedged_percent(self.settings) / 100),
            cleaning=CleaningInProcess(),
            clocks=Clocks(
                now_ms=self.clock.now_ms, steady_ms=self.clock.steady_ms, steady_sec=_Time.monotonic
            ),
        )
        self._broker = broker = BrokerProcess(basics)
        self.listener = cast(Any, basics.listener)
        try:
            status = await broker.run(self._stop)
            how = f"ended with status {status}"
        except BaseException as problem:  # noqa: BLE001 - whatever it is, it ends the process
            how = f"could not go on: {problem!r}"
        self._trace.add(self.name, how)
        self._end(how)

    def _end(self, how: str) -> None:
        """A process that ends takes all its tasks with it."""
        self.is_dead = True
        self.process.stop()
        self._metadata.end()
        if not self.ended.done():
            self.ended.set_result(how)

    # --- what is seen of it from outside

    @property
    def is_up(self) -> bool:
        """True if clients can connect to it now."""
        return (
            not self.is_dead
            and not self.process.is_stopped
            and self.listener is not None
            and self.listener.dispatcher is not None
        )

    @property
    def view(self) -> ClusterView:
        """Its picture of the cluster. Only for a broker that is, or was, up."""
        assert self._broker is not None
        return self._broker.serving.view

    @property
    def logs(self) -> LogManager:
        """The partitions that it leads and follows. Only for a broker that is, or was, up."""
        assert self._broker is not None
        return self._broker.serving.logs

    @property
    def broker(self) -> BrokerProcess:
        """All of it."""
        assert self._broker is not None
        return self._broker

    # --- what is done to it

    def kill(self) -> None:
        """As kill -9: nothing of it runs any more; what it sent arrives."""
        self._trace.add(self.name, "is killed")
        if self.listener is not None:
            self.listener.die()
        self._end("killed")

    def pause(self) -> None:
        """As SIGSTOP."""
        self._trace.add(self.name, "is stopped")
        self.process.stop()

    def go_on(self) -> None:
        """As SIGCONT."""
        self._trace.add(self.name, "goes on")
        self.process.go_on()

    def stop(self) -> None:
        """As SIGTERM."""
        self._trace.add(self.name, "is asked to stop")
        self.is_ending = True
        self.process.call_at(asyncio.get_running_loop().time(), self._stop.set)


class _Randomness:
    """In place of the module `random`: every process draws from its own."""

    @staticmethod
    def Random() -> random.Random:  # noqa: N802 - as in the module
        return random.Random(_process().rng.getrandbits(64))


class _Time:
    """In place of the module `time`: a flush is measured in virtual time."""

    @staticmethod
    def monotonic() -> float:
        return asyncio.get_running_loop().time()

    perf_counter = monotonic


def _process() -> BrokerSideProcess:
    return cast(BrokerSideProcess, current_process())


def _new_token() -> str:
    return f"{_process().rng.getrandbits(32):08x}"


def _new_uuid() -> uuid.UUID:
    return uuid.UUID(int=_process().rng.getrandbits(128), version=4)


@contextlib.contextmanager
def simulated_surroundings(
    *,
    checkpoint_segments: int,
    superseded_grace_ms: int,
    removal_grace_sec: float,
    group_shards: int,
    transactions_at_once: int = TRANSACTIONS_AT_ONCE,
    paces_flushes: bool = True,
) -> Iterator[None]:
    """Randomness, ids and measured times come from the broker's simulated process, for the time of the block."""
    with (
        mock.patch.object(clocks, "thread_cpu_sec", lambda: 0.0),
        mock.patch.multiple(
            broker_parts,
            Listener=SimulatedListener,
            random=_Randomness,
            new_token=_new_token,
            new_journal_id=_new_token,
        ),
        mock.patch.object(flusher, "time", _Time),
        mock.patch.object(flush_pacer, "SPACING", flush_pacer.SPACING * paces_flushes),
        mock.patch.object(flush_pacer, "GATHER_SEC", flush_pacer.GATHER_SEC * paces_flushes),
        mock.patch.object(new_kafka_uuid, "__defaults__", (_new_uuid,)),
        mock.patch.object(partition_log, "CHECKPOINT_SEGMENTS", checkpoint_segments),
        mock.patch.object(checkpointer, "SUPERSEDED_GRACE_MS", superseded_grace_ms),
        mock.patch.object(removals, "GRACE_SEC", removal_grace_sec),
        mock.patch.object(record_writer, "TRANSACTIONS_AT_ONCE", transactions_at_once),
        mock.patch.object(merge_planner, "NEWEST_LEFT", 1),
        mock.patch.object(object_store_health, "LOOK_INTERVAL_SEC", 1.0),
        with_group_shards(group_shards),
    ):
        yield


class ErrorLog(logging.Handler):
    """Takes every error that the code under test logs, except those that trouble brings with it."""

    EXPECTED = (
        "the lease of this broker has ended",
        "stopping without having flushed everything",
        "cannot go on without the",
    )

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.fail: Any = None

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging`."""
        if not str(record.msg).startswith(self.EXPECTED) and self.fail is not None:
            text = f"logged as an error: {record.getMessage()} {getattr(record, 'problem', '')}"
            if record.exc_info:
                text += "\n" + "".join(traceback.format_exception(*record.exc_info))
            self.fail(text)

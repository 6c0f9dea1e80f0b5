"""A broker in a thread, with a clock and faults that the test orders, for clients that block."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kafscale.testing.clock import LEASE_TTL_SEC, MovableLoop
from kafscale.testing.request_faults import RequestFaults
from kafscale.testing.store_faults import StoreFaults
from tests.support.in_process_broker import InProcessBroker, in_process_broker
from tests.support.waiting import PATIENCE_SEC


@dataclass(frozen=True, kw_only=True)
class BrokerWithFaults:
    """The parts for a test. `broker` belongs to the loop's thread; counts may be read from any."""

    loop: MovableLoop
    broker: InProcessBroker
    faults: RequestFaults
    store: StoreFaults

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.broker.port}"

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> str:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        creating = self.broker.create_topic(name, partitions, named)
        return asyncio.run_coroutine_threadsafe(creating, self.loop).result(PATIENCE_SEC)

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The log start offset and the high watermark."""
        found = self.broker.partition(topic, partition)
        return found.record.log_start_offset, found.high_watermark

    def stored(self, topic: str, partition: int = 0) -> int:
        return self.bounds(topic, partition)[1]


@contextmanager
def broker_with_faults(**settings: Any) -> Iterator[BrokerWithFaults]:
    """A running broker; when the block ends nothing of it is left."""
    faults, store, loop = RequestFaults(), StoreFaults(), MovableLoop()
    started: Future[InProcessBroker] = Future()

    async def serve(stop: asyncio.Event) -> None:
        try:
            async with in_process_broker(
                faults=faults,
                store_faults=store,
                clocks=loop.clocks,
                **{
                    "lease_ttl_sec": LEASE_TTL_SEC,
                    "group_initial_rebalance_delay_ms": 0,
                    **settings,
                },
            ) as broker:
                started.set_result(broker)
                await stop.wait()
        except BaseException as problem:
            if not started.done():
                started.set_exception(problem)
            raise

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve(stop)), name="broker with faults")
    thread.start()
    try:
        yield BrokerWithFaults(loop=loop, broker=started.result(PATIENCE_SEC), faults=faults, store=store)
    finally:
        faults.clear()
        store.clear()
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE_SEC)
        loop.close()

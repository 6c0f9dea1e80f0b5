"""A polite client beside a hostile one: its small requests stay quick, the broker's memory and log bounded.

    with watching(broker) as watcher:
        attack(broker)
        watcher.wait_for_rounds()

A round is one Metadata request and one Produce of a small record, each on a connection of its own. When the block
ends, the slowest of them, the growth of the broker's memory and that of its log are compared with their limits.
KAFSCALE_TEST_WATCHER_SECONDS gives the limit of a request: 1 on a quiet machine, by default what a machine whose
cores have tens of busy processes does not reach.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.support import wire
from tests.support.broker import KafscaleBroker
from tests.support.waiting import wait_until

LIMIT_SEC = float(os.environ.get("KAFSCALE_TEST_WATCHER_SECONDS", "10"))
MEMORY_LIMIT_BYTES = 300 << 20
LOG_LIMIT_BYTES = 1 << 20
TOPIC = "watched"
METADATA_VERSION = 8
# A request that takes longer than this has been starved: the watcher gives up rather than hide it in a time-out.
GIVE_UP_SEC = 120.0


@dataclass(slots=True)
class Watcher:
    """Times requests on a thread. `slowest_sec` is by name of the request."""

    broker: KafscaleBroker
    rounds: int = 0
    slowest_sec: dict[str, float] = field(default_factory=dict)
    failure: Exception | None = None
    _ending: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Do rounds until the block ends."""
        try:
            with (
                wire.connect(self.broker, GIVE_UP_SEC) as asking,
                wire.connect(self.broker, GIVE_UP_SEC) as writing,
            ):
                while not self._ending.is_set():
                    with self._timed("metadata"):
                        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
                        asking.call(request, MetadataResponse, METADATA_VERSION)
                    with self._timed("produce"):
                        answer = wire.produce(writing, TOPIC, 0, wire.batch([b"small"]))
                    assert answer.error_code == 0, f"the watcher's produce was refused: {answer.error_code}"
                    self.rounds += 1
        except Exception as problem:  # noqa: BLE001 - the test's thread raises it
            self.failure = problem

    def wait_for_rounds(self, count: int = 3, timeout_s: float = GIVE_UP_SEC) -> None:
        """Wait until `count` rounds that began after this call are over: what the attack stalls is in them."""
        wanted = self.rounds + 1 + count
        wait_until(lambda: self.failure or self.rounds >= wanted, "the watcher is served", timeout_s)

    def stop(self) -> None:
        """Finish the current round."""
        self._ending.set()

    def says(self) -> str:
        """The slowest of each request, in words."""
        return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in sorted(self.slowest_sec.items()))

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - began
            self.slowest_sec[name] = max(self.slowest_sec.get(name, 0.0), seconds)


@contextlib.contextmanager
def watching(
    broker: KafscaleBroker,
    *,
    limit_sec: float = LIMIT_SEC,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    log_limit_bytes: int = LOG_LIMIT_BYTES,
) -> Iterator[Watcher]:
    """Watch for the time of the block, after which an AssertionError tells what an attack did to others."""
    watcher = Watcher(broker)
    _prepare(broker)
    memory_before, log_before = broker.memory_bytes(), len(broker.log_text())
    reset_peak_memory(broker)
    thread = threading.Thread(target=watcher.watch, name="watcher")
    thread.start()
    try:
        watcher.wait_for_rounds(1)
        yield watcher
    finally:
        watcher.stop()
        thread.join()
    grown_bytes = broker.peak_memory_bytes() - memory_before
    logged_bytes = len(broker.log_text()) - log_before
    print(f"watcher: {watcher.says()}; memory +{grown_bytes >> 20} MiB; log +{logged_bytes} bytes")
    if watcher.failure is not None:
        raise AssertionError(f"the watcher failed after {watcher.rounds} rounds") from watcher.failure
    slowest = max(watcher.slowest_sec.values())
    assert slowest < limit_sec, f"others waited: {watcher.says()}"
    assert grown_bytes < memory_limit_bytes, f"memory grew by {grown_bytes >> 20} MiB"
    assert logged_bytes < log_limit_bytes, f"the log grew by {logged_bytes} bytes"


def reset_peak_memory(broker: KafscaleBroker) -> None:
    """Let `peak_memory_bytes` count from now on (Linux)."""
    Path(f"/proc/{broker.pid}/clear_refs").write_text("5")


def _prepare(broker: KafscaleBroker) -> None:
    """Create the topic and write a first record: one-time costs are not the attack's doing."""

    def is_writable() -> bool:
        with wire.connect(broker, GIVE_UP_SEC) as connection:
            request = MetadataRequest(
                topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=True
            )
            connection.call(request, MetadataResponse, METADATA_VERSION)
            return bool(wire.produce(connection, TOPIC, 0, wire.batch([b"first"])).error_code == 0)

    wait_until(is_writable, "the watcher's topic is there")

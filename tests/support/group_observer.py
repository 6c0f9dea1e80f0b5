"""Reads a group's committed offsets all the time, through restarts of the broker."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from kafka.protocol.consumer import OffsetFetchResponse

from tests.support import wire
from tests.support.group_apis import fetch_offsets_request, offsets_in
from tests.support.group_witness import NOTHING_COMMITTED, Observation
from tests.support.waiting import PATIENCE_SEC

OFFSET_FETCH_VERSION = 7
PAUSE_SECONDS = 0.05
RECONNECT_SECONDS = 0.02
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: errors of a coordinator at its start
RETRIABLE_CODES = (14, 15, 16)

Connect = Callable[[], AbstractContextManager[wire.Wire]]


class Observer:
    """A thread with a connection of its own. `observations` grow until `stop`.

    `connect`: to the group's coordinator; again after an error. Raises `OSError` while there is none.
    """

    def __init__(self, connect: Connect, group: str, topic: str, partitions: int) -> None:
        self.observations: list[Observation] = []
        self._connect = connect
        self._group = group
        self._pairs = [(topic, partition) for partition in range(partitions)]
        self._failures: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"observer of {group}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Raises AssertionError on an error that no restart excuses."""
        self._stopping.set()
        self._thread.join(PATIENCE_SEC)
        assert not self._thread.is_alive(), f"{self._thread.name} did not end"
        self.check()

    def check(self) -> None:
        assert not self._failures, self._failures[:5]

    def last(self) -> dict[int, int]:
        """Partition -> last committed offset seen, -1 if none."""
        if not self.observations:
            return {partition: NOTHING_COMMITTED for _, partition in self._pairs}
        return dict(self.observations[-1].offsets)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._connect() as connection:
                    while not self._stopping.is_set() and self._look(connection):
                        self._stopping.wait(PAUSE_SECONDS)
            except (OSError, wire.ConnectionEndedError):
                self._stopping.wait(RECONNECT_SECONDS)
            except Exception as error:  # noqa: BLE001  (a thread's exception would be lost)
                self._failures.append(repr(error))
                return

    def _look(self, connection: wire.Wire) -> bool:
        """True if the coordinator has answered."""
        began_s = time.monotonic()
        request = fetch_offsets_request({self._group: self._pairs}, OFFSET_FETCH_VERSION)
        reply = connection.call(request, OffsetFetchResponse, OFFSET_FETCH_VERSION)
        rows = offsets_in(reply, OFFSET_FETCH_VERSION)
        codes = {reply.error_code, *(one.error_code for one in rows.values())} - {0}
        if not codes:
            offsets = {partition: one.offset for (_, partition), one in rows.items()}
            assert len(offsets) == len(self._pairs), f"{len(self._pairs)} partitions asked for, got {offsets}"
            self.observations.append(Observation(began_s=began_s, ended_s=time.monotonic(), offsets=offsets))
        elif not codes <= set(RETRIABLE_CODES):
            self._failures.append(f"OffsetFetch of {self._group}: error codes {codes}")
        if codes:
            self._stopping.wait(RECONNECT_SECONDS)
        return not codes

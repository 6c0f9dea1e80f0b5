"""A measured window: time, CPU of broker, machine and driver, and records, read at its two edges."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.process import CpuSeconds, machine_cpu, process_trees_cpu
from bench.specs import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    at: float
    records: int
    broker: CpuSeconds
    machine: CpuSeconds
    driver: float

    @classmethod
    def now(cls, broker_pids: Sequence[int], records: int) -> "_Edge":
        return cls(
            broker=process_trees_cpu(broker_pids),
            machine=machine_cpu(),
            driver=time.process_time(),
            records=records,
            at=time.perf_counter(),
        )


class Meter:
    """Runs inside the driver, so that a window's edges fall where the driver's counts are exact.

    It may be opened and closed several times; the window is then the sum of the stretches between.
    """

    def __init__(self, broker_pids: Sequence[int]) -> None:
        self._broker_pids = broker_pids
        self._edges: list[_Edge] = []

    @property
    def never_opened(self) -> bool:
        return not self._edges

    @property
    def is_open(self) -> bool:
        return len(self._edges) % 2 == 1

    def open(self, records: int) -> None:
        """`records`: how many were processed before."""
        self._mark(records, opens=True)

    def close(self, records: int) -> None:
        """`records`: how many are processed by now."""
        self._mark(records, opens=False)

    def window(self, record_bytes: int, total_records: int) -> Window:
        """The sum of all stretches. Raises ValueError if the meter is open or was never opened."""
        if self.is_open or self.never_opened:
            raise ValueError("the window was not opened and closed")
        stretches = list(zip(self._edges[::2], self._edges[1::2], strict=True))
        records = sum(last.records - first.records for first, last in stretches)
        driver = sum(last.driver - first.driver for first, last in stretches)
        broker = [last.broker - first.broker for first, last in stretches]
        machine = sum((last.machine - first.machine).total for first, last in stretches)
        return Window(
            seconds=sum(last.at - first.at for first, last in stretches),
            records=records,
            payload_bytes=records * record_bytes,
            broker_user_seconds=sum(cpu.user for cpu in broker),
            broker_system_seconds=sum(cpu.system for cpu in broker),
            machine_seconds=machine - driver,
            driver_seconds=driver,
            total_records=total_records,
        )

    def _mark(self, records: int, *, opens: bool) -> None:
        if self.is_open is opens:
            raise ValueError("the meter is open already" if opens else "the meter is not open")
        self._edges.append(_Edge.now(self._broker_pids, records))

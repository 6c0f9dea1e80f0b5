"""Rows of the report that several workloads share, made of what their drivers measured."""

from bench.specs import Window
from bench.workloads.driving import DriverError
from bench.workloads.workload import Values

BYTES_PER_MB = 1e6
BYTES_PER_GB = 1e9


def volume(workload: str, window: Window, writeback_per_gb: float = 0.0) -> Values:
    """A window measured in bytes. `writeback_per_gb`: machine CPU s/GB spent after it."""
    gigabytes = window.payload_bytes / BYTES_PER_GB
    if not gigabytes:
        raise DriverError(f"{workload}: nothing came back in the window")
    yield workload, "MB/s", window.payload_bytes / BYTES_PER_MB / window.seconds
    yield workload, "records/s", window.records / window.seconds
    yield workload, "broker CPU s/GB", window.broker_seconds / gigabytes
    yield workload, "machine CPU s/GB", window.machine_seconds / gigabytes + writeback_per_gb
    yield from cores(workload, window)


def requests(workload: str, window: Window) -> Values:
    """A window in which each record was a request of its own."""
    if not window.records:
        raise DriverError(f"{workload}: nothing came back in the window")
    yield workload, "requests/s", window.records / window.seconds
    yield workload, "broker CPU us/request", window.broker_seconds / window.records * 1e6
    yield from cores(workload, window)


def cores(workload: str, window: Window) -> Values:
    """The use of the processors; `other` is neither broker nor driver: kernel threads, or other load."""
    yield workload, "broker cores", window.broker_seconds / window.seconds
    yield workload, "driver cores", window.driver_seconds / window.seconds
    yield workload, "other cores", max(0.0, window.machine_seconds - window.broker_seconds) / window.seconds


def percentile(ordered: list[float], percent: float) -> float:
    """The value that `percent` of them do not exceed. Raises `DriverError` if there are none."""
    if not ordered:
        raise DriverError("no request was answered in the window")
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]

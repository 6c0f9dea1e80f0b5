"""The operating system's figures of a process and of the machine: CPU seconds, memory, writeback."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_BYTES_PER_KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSeconds:
    """CPU time so far, in seconds; the difference of two readings is the cost of a window."""

    user: float
    system: float

    @property
    def total(self) -> float:
        return self.user + self.system

    def __sub__(self, other: "CpuSeconds") -> "CpuSeconds":
        return CpuSeconds(user=self.user - other.user, system=self.system - other.system)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of one process in bytes; `private_bytes` does not include pages shared with other processes."""

    resident_bytes: int
    peak_resident_bytes: int
    private_bytes: int
    threads: int


def process_tree_cpu(pid: int) -> CpuSeconds:
    """CPU of `pid`, all its threads (ended ones included), and its living descendants (see proc(5), stat)."""
    user = system = 0
    for member in _with_descendants(pid):
        fields = _stat_fields(member)
        user += int(fields[11])
        system += int(fields[12])
    return CpuSeconds(user=user / _TICKS_PER_SECOND, system=system / _TICKS_PER_SECOND)


def process_trees_cpu(pids: Iterable[int]) -> CpuSeconds:
    """The same of several processes together, none of which may be a descendant of another."""
    each = [process_tree_cpu(pid) for pid in pids]
    return CpuSeconds(user=sum(cpu.user for cpu in each), system=sum(cpu.system for cpu in each))


def process_tree_cpu_with_ended(pid: int) -> CpuSeconds:
    """As `process_tree_cpu`, with the descendants that have ended, once their parent has waited for them."""
    user = system = 0
    for member in _with_descendants(pid):
        fields = _stat_fields(member)
        user += int(fields[11]) + int(fields[13])
        system += int(fields[12]) + int(fields[14])
    return CpuSeconds(user=user / _TICKS_PER_SECOND, system=system / _TICKS_PER_SECOND)


def process_cpu(pid: int) -> CpuSeconds:
    """CPU of `pid` alone, all its threads. Raises FileNotFoundError when it has ended."""
    fields = _stat_fields(pid)
    return CpuSeconds(user=int(fields[11]) / _TICKS_PER_SECOND, system=int(fields[12]) / _TICKS_PER_SECOND)


def descendants(pid: int) -> list[int]:
    """The living descendants of `pid`, without itself."""
    return list(_with_descendants(pid))[1:]


def machine_cpu() -> CpuSeconds:
    """CPU of the whole machine, kernel threads included; idle, iowait and steal excluded."""
    first_line = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _idle, _iowait, irq, softirq = (int(ticks) for ticks in first_line[1:8])
    return CpuSeconds(
        user=(user + nice) / _TICKS_PER_SECOND, system=(system + irq + softirq) / _TICKS_PER_SECOND
    )


def memory(pid: int) -> Memory:
    """Memory of `pid` alone. Raises FileNotFoundError when it has ended."""
    status = _key_values(Path(f"/proc/{pid}/status").read_text())
    rollup = _key_values(Path(f"/proc/{pid}/smaps_rollup").read_text())
    return Memory(
        resident_bytes=_kib(status["VmRSS"]),
        peak_resident_bytes=_kib(status["VmHWM"]),
        private_bytes=_kib(rollup["Private_Clean"]) + _kib(rollup["Private_Dirty"]),
        threads=int(status["Threads"]),
    )


def filesystem_type(path: Path) -> str:
    """The type of the file system of `path`, such as ext4 or tmpfs (from /proc/mounts)."""
    resolved = path.resolve()
    best_length, best_type = -1, "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _device, mount_point, kind, *_rest = line.split()
        holds = resolved == Path(mount_point) or Path(mount_point) in resolved.parents
        if holds and len(mount_point) > best_length:
            best_length, best_type = len(mount_point), kind
    return best_type


def _with_descendants(root: int) -> Iterable[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in _processes():
        children.setdefault(parent, []).append(pid)
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def _processes() -> Iterator[tuple[int, int]]:
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            yield int(entry), int(_stat_fields(int(entry))[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it exited while the list was read


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third (state) on: a command's name may hold spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _key_values(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {key: value.strip() for key, _colon, value in pairs}


def _kib(value: str) -> int:
    return int(value.removesuffix("kB")) * _BYTES_PER_KIB

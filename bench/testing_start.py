"""The cost of a broker in a test: `python -m bench.testing_start`.

The import of `kafscale.testing`, the first broker from `start()` to its first answer, further brokers, their stop,
and their memory; each in processor time, too, since that of a busy machine's clock says little.
"""

import importlib
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kafscale.testing import KafkaBroker

_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_ROOT = Path(__file__).resolve().parent.parent
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds by the clock, and of the processor."""

    wall_ms: float
    cpu_ms: float


@dataclass(frozen=True, slots=True)
class Round:
    """One process. `starts` and `stops`: of further brokers, after the first."""

    imported: Cost
    first: Cost
    starts: list[Cost]
    stops: list[Cost]
    broker_bytes: float


def _measured(action: Callable[[], object]) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return Cost((time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def _answer(broker: "KafkaBroker") -> None:
    """The first request, over a new connection."""
    with socket.create_connection((broker.host, broker.port)) as connection:
        connection.sendall(_API_VERSIONS)
        (length,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        connection.recv(length, socket.MSG_WAITALL)


def measure(brokers: int) -> Round:
    """Measure in this process, which must not have imported Kafscale."""

    imported = _measured(lambda: importlib.import_module("kafscale.testing").KafkaBroker)
    from kafscale.testing import KafkaBroker

    def start() -> None:
        running.append(KafkaBroker().start())
        _answer(running[-1])

    running: list[KafkaBroker] = []
    starts, stops = [], []
    for _ in range(brokers + 1):
        starts.append(_measured(start))
        stops.append(_measured(running.pop().stop))
    before = _resident_bytes()
    held = max(1, brokers // 4)
    for _ in range(held):
        start()
    broker_bytes = (_resident_bytes() - before) / held
    for broker in running:
        broker.stop()
    return Round(imported, starts[0], starts[1:], stops[1:], broker_bytes)


def _fresh(brokers: int) -> Round:
    """The same in a new process."""
    command = (sys.executable, "-m", "bench.testing_start", "--json", "--brokers", str(brokers))
    shown = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True).stdout
    found = json.loads(shown)
    costs = {name: [Cost(**one) for one in found[name]] for name in ("starts", "stops")}
    return Round(
        Cost(**found["imported"]),
        Cost(**found["first"]),
        costs["starts"],
        costs["stops"],
        found["broker_bytes"],
    )


def _row(name: str, costs: Sequence[Cost]) -> str:
    walls = sorted(cost.wall_ms for cost in costs)
    p99 = walls[min(len(walls) - 1, len(walls) * 99 // 100)]
    cpu = median(cost.cpu_ms for cost in costs)
    return f"{name:<46}{walls[0]:9.1f}{median(walls):9.1f}{p99:9.1f}{cpu:9.1f}"


@click.command(help="Measure how quickly a broker starts inside a test. Asserts nothing.")
@click.option(
    "--brokers", default=100, show_default=True, type=click.IntRange(min=4), help="After the first."
)
@click.option("--repeat", "repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--json", "as_json", is_flag=True, help="One round in this process, as JSON.")
def main(brokers: int, repeats: int, as_json: bool) -> None:
    """Measure, and print a table."""
    if as_json:
        click.echo(json.dumps(asdict(measure(brokers))))
        return
    rounds = [_fresh(brokers) for _ in range(repeats)]
    click.echo(f"{'milliseconds':<46}{'best':>9}{'median':>9}{'p99':>9}{'CPU':>9}")
    click.echo(_row("import of kafscale.testing.KafkaBroker", [one.imported for one in rounds]))
    click.echo(_row("first broker, to its first answer", [one.first for one in rounds]))
    click.echo(_row("further broker, to its first answer", [cost for one in rounds for cost in one.starts]))
    click.echo(_row("stop", [cost for one in rounds for cost in one.stops]))
    click.echo(f"memory of a broker: {median(one.broker_bytes for one in rounds) / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()

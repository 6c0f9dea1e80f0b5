"""One run of the benchmark: every workload, all its peers in turn, interleaved and repeated."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import BrokerError, Peer
from bench.kafka_libs import KafkaUnavailableError
from bench.measurement import Measurement
from bench.plan import Plan
from bench.wire import WireError
from bench.workloads import DriverError, Workload

_FAILURES = (BrokerError, DriverError, KafkaUnavailableError, WireError, OSError)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a run produced: the values, and what failed (one line each), for the report to say so."""

    measurements: list[Measurement]
    failures: list[str]


def run(
    peers: Sequence[Peer],
    workloads: Sequence[Workload],
    plan: Plan,
    repeats: int,
    work_dir: Path,
    progress: Callable[[str], None],
) -> Outcome:
    """Measures A B A B …, never two brokers at once, each on a fresh data folder.

    A failure ends that peer's sample of that workload only: what was measured before it stays.
    """
    outcome = Outcome(measurements=[], failures=[])
    for repeat in range(1, repeats + 1):
        for workload in workloads:
            for peer in peers:
                if workload.needs_client and not peer.speaks_kafka:
                    continue
                label = f"repeat {repeat}/{repeats}  {workload.name}  {peer.name}"
                begin = time.monotonic()
                try:
                    for measured in _sample(peer, workload, plan, repeat, work_dir):
                        outcome.measurements.append(measured)
                        progress(f"{label}: {measured.workload}, {measured.metric} = {measured.value:.4g}")
                except _FAILURES as error:
                    outcome.failures.append(f"{label}: {error}")
                    progress(f"{label} FAILED: {error}")
                progress(f"{label}: done in {time.monotonic() - begin:.0f} s")
    return outcome


def _sample(peer: Peer, workload: Workload, plan: Plan, repeat: int, work_dir: Path) -> Iterator[Measurement]:
    broker = peer.make(work_dir)
    try:
        if workload.starts_broker:
            broker.start()
        for name, metric, value in workload.run(broker, plan):
            yield Measurement(peer=peer.name, workload=name, metric=metric, value=value, repeat=repeat)
    finally:
        broker.remove()


def to_stderr(line: str) -> None:
    """The default progress: one line on stderr."""
    print(line, file=sys.stderr, flush=True)

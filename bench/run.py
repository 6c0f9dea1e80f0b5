"""One run of the benchmark: every workload, all its peers in turn, interleaved and repeated."""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from bench.brokers import BrokerError
from bench.kafka_libs import KafkaUnavailableError
from bench.measurement import Measurement
from bench.peers import Peer
from bench.plan import Plan
from bench.wire import WireError
from bench.workloads.driving import DriverError
from bench.workloads.workload import Stage, Workload

# AssertionError: raised by the test suite's servers and members on a failure.
_FAILURES = (BrokerError, DriverError, KafkaUnavailableError, WireError, OSError, AssertionError)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The results of a run: the values, the failures (one line each), and the seconds of each workload."""

    measurements: list[Measurement] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


def expected_seconds(
    peers: Sequence[Peer], workloads: Sequence[Workload], plan: Plan, repeats: int
) -> dict[str, float]:
    """The estimated duration of all samples of each workload."""
    return {
        workload.name: repeats * workload.seconds(plan) * sum(1 for peer in peers if workload.fits(peer))
        for workload in workloads
    }


def run(
    peers: Sequence[Peer],
    workloads: Sequence[Workload],
    plan: Plan,
    repeats: int,
    work_dir: Path,
    progress: Callable[[str], None],
) -> Outcome:
    """Measures A B A B …, never two peers at once, each on a fresh data folder.

    A failure ends that peer's sample of that workload only, an interrupt ends the run: earlier measurements
    are kept.
    """
    outcome = Outcome()
    try:
        for repeat in range(1, repeats + 1):
            for workload in workloads:
                begin = time.monotonic()
                for peer in peers:
                    if workload.fits(peer):
                        label = f"repeat {repeat}/{repeats}  {workload.name}  {peer.name}"
                        stage = Stage(peer=peer, plan=plan, work_dir=work_dir)
                        _sample(stage, workload, repeat, label, outcome, progress)
                took = time.monotonic() - begin
                outcome.seconds[workload.name] = outcome.seconds.get(workload.name, 0.0) + took
    except KeyboardInterrupt:
        outcome.failures.append("interrupted: what was to come is missing")
    return outcome


def _sample(
    stage: Stage,
    workload: Workload,
    repeat: int,
    label: str,
    outcome: Outcome,
    progress: Callable[[str], None],
) -> None:
    begin = time.monotonic()
    try:
        with closing(workload.run(stage)) as values:  # so that its broker is stopped here in any case
            for row, metric, value in values:
                outcome.measurements.append(
                    Measurement(peer=stage.peer.name, workload=row, metric=metric, value=value, repeat=repeat)
                )
                progress(f"{label}: {row}, {metric} = {value:.4g}")
    except _FAILURES as error:
        outcome.failures.append(f"{label}: {type(error).__name__}: {error}")
        progress(f"{label} FAILED: {error}")
    progress(f"{label}: done in {time.monotonic() - begin:.0f} s")


def to_stderr(line: str) -> None:
    """The default progress: one line on stderr."""
    print(line, file=sys.stderr, flush=True)

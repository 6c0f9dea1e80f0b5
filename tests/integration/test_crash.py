"""kill -9 at any moment: nothing that was acknowledged is lost, moved, doubled or reordered.

KAFSCALE_TEST_KILLS sets how often (default 3; `make nightly` 100), KAFSCALE_TEST_SEED repeats a run's moments.
"""

import os
import random
import time
from typing import Any

import pytest

from kafscale.log.life.sealer import PARTITIONS_AT_ONCE
from tests.integration.conftest import StartBroker
from tests.support import wire
from tests.support.audit import AuditedSegment, audit
from tests.support.broker import KafscaleBroker
from tests.support.fsck import fsck, problems
from tests.support.ledger import Ledger, Place, Record
from tests.support.load import IdempotentLoad, Load, PipelinedLoad
from tests.support.sealing import SEALED_SOON
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

KILLS = int(os.environ.get("KAFSCALE_TEST_KILLS", "3"))
SEED = int(os.environ.get("KAFSCALE_TEST_SEED", random.SystemRandom().randrange(2**32)))

TOPICS = {"plain": 3, "other": 2}
PRODUCERS = 4
PLACES: list[Place] = [(topic, index) for topic, count in TOPICS.items() for index in range(count)]


def producers(broker: Any, ledger: Ledger) -> list[Load]:
    return [
        IdempotentLoad("idempotent-a", broker, PLACES, ledger),
        IdempotentLoad("idempotent-b", broker, PLACES[:2], ledger, compression_type="lz4"),
        PipelinedLoad("pipelined", broker, PLACES, ledger, in_flight=4),
        PipelinedLoad("serial", broker, PLACES[1:2], ledger, in_flight=1, codec="gzip"),
    ]


def wait_for_progress(ledger: Ledger, *, everybody: bool) -> None:
    """Wait for new acknowledgements: of somebody, or of every producer."""
    before = ledger.count()

    def progress() -> bool:
        ledger.check_producers()
        if everybody:
            return len(ledger.producers(before)) == PRODUCERS
        return ledger.count() > before + 50

    wait_until(progress, "acknowledgements")


def kill_at_random_moments(broker: Any, ledger: Ledger, generator: random.Random, kills: int) -> None:
    """Each time: some new acknowledgements, a random while, kill -9, start again without any repair."""
    for number in range(kills):
        # librdkafka takes half a second to come back, so most of the time it is waited for
        wait_for_progress(ledger, everybody=number == 0 or generator.random() < 0.7)
        time.sleep(generator.uniform(0.0, 0.5))  # the random moment
        broker.kill9()
        if generator.random() < 0.4 and hasattr(broker, "launch_only"):
            broker.launch_only()
            time.sleep(generator.uniform(0.0, 0.5))  # somewhere in its start-up
            broker.kill9()
        broker.start()
        print(f"kill {number + 1}: {ledger.count()} acknowledged")


def read_everything(broker: Any) -> dict[Place, list[Record]]:
    with wire.connect(broker) as connection:
        return {place: wire.read_all(connection, *place) for place in PLACES}


def run_load_and_crashes(broker: Any, seed: int, kills: int) -> Ledger:
    """Returns what was acknowledged; the broker runs at the end."""
    generator, ledger = random.Random(seed), Ledger()
    for topic, partitions in TOPICS.items():
        create_topic(broker, topic, partitions)
    loads = producers(broker, ledger)
    for load in loads:
        load.start()
    try:
        kill_at_random_moments(broker, ledger, generator, kills)
    finally:
        for load in loads:
            load.stop()
        for load in loads:
            load.join(120)
    return ledger


def key_of(broker: KafscaleBroker, segment: AuditedSegment) -> str:
    return segment.path.relative_to(broker.data_folder / "objects").as_posix()


def check_the_files(broker: KafscaleBroker, ledger: Ledger, read: dict[Place, list[Record]]) -> None:
    """The second witness: the files alone hold all that was promised, and all that was read.

    They may have more: what was stored and never acknowledged, or deleted.
    """
    files = audit(broker.data_folder)
    # A kill may leave segments that were being sealed: the records that name them go last.
    without_index = [segment for segment in files.segments if segment.lacks_index]
    assert len(without_index) <= (KILLS + 1) * min(len(PLACES), PARTITIONS_AT_ONCE)
    report = fsck(broker, "--repair")[1]
    assert problems(report) == []
    files = audit(broker.data_folder)
    # The next broker may have sealed others in their place: what no record names needs no index.
    lack_index = {key_of(broker, segment) for segment in files.segments if segment.lacks_index}
    assert lack_index <= {orphan["key"] for part in report["partitions"] for orphan in part["orphans"]}
    stored = {place: [(one.offset, one.value) for one in files.records(*place)] for place in PLACES}
    ledger.check_promises(stored)
    for place, records in read.items():
        missing = set(records) - set(stored[place])
        assert not missing, f"{place}: read, but not in the files: {sorted(missing)[:5]}"
    print(f"{len(files.segments)} segments, {len(files.orphans)} orphans")


@pytest.mark.timeout(900 + 15 * KILLS)
@pytest.mark.parametrize(
    ("flush_interval_ms", "sealing"),
    [
        pytest.param(0, SEALED_SOON, id="kills meet gathering and sealing"),
        pytest.param(30, {}, id="most stays in the journal", marks=pytest.mark.nightly),
    ],
)
def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(
    start_broker: StartBroker, flush_interval_ms: int, sealing: dict[str, Any]
) -> None:
    print(f"KAFSCALE_TEST_SEED={SEED} KAFSCALE_TEST_KILLS={KILLS}")
    broker = start_broker(flush_interval_ms=flush_interval_ms, **sealing)
    ledger = run_load_and_crashes(broker, SEED + flush_interval_ms, KILLS)
    assert ledger.count() > 50 * KILLS
    broker.kill9()  # once more, with nothing in progress
    broker.start()
    read = read_everything(broker)
    ledger.check(read)
    broker.stop()
    check_the_files(broker, ledger, read)

"""However leaders follow one another, and members crash, no record of a share group is lost or finished twice."""

import random

import pytest

from kafscale.protocol.error_codes import KafkaError
from tests.share.leaders_walk import walk
from tests.share.mistakes import LEADER_MISTAKES, Plant
from tests.support.nightly import by_day

WALKS_SEARCHED = 1_000
WALKS = by_day(10, by_night=2_000)


@pytest.mark.timeout(300 + WALKS)
def test_no_record_is_lost_or_finished_twice() -> None:
    first = random.randrange(2**32)
    print(f"seeds {first} to {first + WALKS - 1}")
    for seed in range(first, first + WALKS):
        try:
            walk(seed)
        except AssertionError as problem:
            raise AssertionError(f"seed {seed}: {problem}") from problem


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", LEADER_MISTAKES, ids=lambda plant: plant.__name__)
def test_the_walk_notices(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(WALKS_SEARCHED):
        try:
            walk(seed)
        except (AssertionError, KafkaError):
            return
    pytest.fail(f"no walk of {WALKS_SEARCHED} notices")

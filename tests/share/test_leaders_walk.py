"""However leaders follow one another, and members crash, no record of a share group is lost or finished twice."""

import random

import pytest

from tests.share.leaders_walk import walk
from tests.support.nightly import by_day

WALKS = by_day(20, by_night=2_000)


@pytest.mark.timeout(300 + WALKS)
def test_no_record_is_lost_or_finished_twice() -> None:
    first = random.randrange(2**32)
    print(f"seeds {first} to {first + WALKS - 1}")
    for seed in range(first, first + WALKS):
        try:
            walk(seed)
        except AssertionError as problem:
            raise AssertionError(f"seed {seed}: {problem}") from problem

"""Rebalances with the longest names that there are: the log says who and why, and stays small."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.hostile_groups import LONGEST_TEXT, join_group, joined_member_id
from tests.support.watcher import watching

REBALANCES = 400
AT_ONCE = 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafscaleBroker]:
    with running_broker(tmp_path, flush_interval_ms=0, group_initial_rebalance_delay_ms=0) as broker:
        yield broker


def rebalance_again_and_again(broker: KafscaleBroker, group: str) -> None:
    """A lone member that joins with something new each time, `AT_ONCE` requests ahead of the replies."""
    with wire.connect(broker, timeout_s=120) as connection:
        connection.send_bytes(join_group(group, client_id=LONGEST_TEXT, protocol=LONGEST_TEXT))
        error_code, member_id = joined_member_id(connection.receive_frame())
        assert error_code == 0
        for start in range(0, REBALANCES, AT_ONCE):
            for number in range(start, start + AT_ONCE):
                request = join_group(
                    group, member_id, b"%d" % number, client_id=LONGEST_TEXT, protocol=LONGEST_TEXT
                )
                connection.send_bytes(request)
            for _ in range(AT_ONCE):
                assert joined_member_id(connection.receive_frame()) == (0, member_id)


def test_long_names_in_rebalances_keep_the_log_small(broker: KafscaleBroker) -> None:
    with watching(broker, log_limit_bytes=100_000) as watcher:
        rebalance_again_and_again(broker, LONGEST_TEXT)
        watcher.wait_for_rounds()
    lines = [line for line in broker.log_text().splitlines() if "xxxx" in line]
    assert lines, "the rebalances are not in the log at all"
    assert max(map(len, lines)) < 2000


def test_rebalances_of_many_groups_keep_the_log_small(broker: KafscaleBroker) -> None:
    """Each has lines of its own; all lines of a kind have a limit, too."""
    began_sec = time.monotonic()
    with watching(broker) as watcher, wire.connect(broker, 120) as connection:
        for number in range(3000):
            connection.send_bytes(join_group(f"{number}-{LONGEST_TEXT[:200]}"))
            assert joined_member_id(connection.receive_frame())[0] == 0
        watcher.wait_for_rounds()
    allowed = 200 + 10 * (time.monotonic() - began_sec) + 1
    assert 0 < sum(" rebalance " in line for line in broker.log_text().splitlines()) <= allowed

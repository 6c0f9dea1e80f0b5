"""The watcher itself: it tells when others wait, and passes when they do not."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import KafscaleBroker, running_broker
from tests.support.waiting import wait_until
from tests.support.watcher import watching

STALL_SEC = 1.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafscaleBroker]:
    with running_broker(tmp_path, flush_interval_ms=0) as broker:
        yield broker


def test_watcher_beside_no_attack_passes(broker: KafscaleBroker) -> None:
    with watching(broker) as watcher:
        watcher.wait_for_rounds()
    assert watcher.rounds >= 3
    assert set(watcher.slowest_sec) == {"metadata", "produce"}


def test_watcher_of_a_stalled_broker_fails(broker: KafscaleBroker) -> None:
    with pytest.raises(AssertionError, match="others waited"), watching(broker, limit_sec=STALL_SEC / 2):
        broker.send_signal(signal.SIGSTOP)
        ends_sec = time.monotonic() + STALL_SEC
        wait_until(lambda: time.monotonic() > ends_sec, "the stall")
        broker.send_signal(signal.SIGCONT)


def test_watcher_of_a_talkative_broker_fails(broker: KafscaleBroker) -> None:
    log = broker.log_path.open("a")
    with log, pytest.raises(AssertionError, match="the log grew"), watching(broker, log_limit_bytes=1):
        print("more than one byte", file=log, flush=True)

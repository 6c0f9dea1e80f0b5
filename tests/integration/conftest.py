"""Brokers of their own for tests that stop, kill, starve or misuse them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.broker import KafscaleBroker
from tests.support.reporting import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]

StartBroker = Callable[..., KafscaleBroker]


@pytest.fixture
def new_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers start as operators start them, not as forks: for tests of the start itself."""
    monkeypatch.setattr(KafscaleBroker, "forks", False)


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts brokers with the settings given; those that still run at the end must stop cleanly."""
    brokers: list[KafscaleBroker] = []

    def start(name: str = "kafscale", **settings: object) -> KafscaleBroker:
        broker = KafscaleBroker(tmp_path / name, name, **settings)
        brokers.append(broker)
        broker.start()
        return broker

    try:
        yield start
        for broker in brokers:
            if broker.exit_code is None:
                broker.stop()
    finally:
        for broker in brokers:
            broker.close()

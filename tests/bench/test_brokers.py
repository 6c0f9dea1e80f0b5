"""The processes of a measurement end, whatever interrupts it."""

import sys
from pathlib import Path

from bench.brokers import Broker


class Sleeping(Broker):
    """A process that does nothing."""

    name = "sleeping"

    def command(self) -> list[str]:
        return [sys.executable, "-c", "import time; time.sleep(3600)"]

    def environment(self) -> dict[str, str]:
        return {}

    def ready(self) -> bool:
        return True


def test_kill_after_an_interrupted_wait_returns(tmp_path: Path) -> None:
    """An interrupt just after Popen had locked its wait: the run that was to end hung."""
    broker = Sleeping(tmp_path)
    broker.launch()
    process = broker._process
    assert process is not None
    lock = process._waitpid_lock  # type: ignore[attr-defined]
    lock.acquire()
    broker.kill()
    assert process.returncode == -9
    broker.remove()
    assert list(tmp_path.iterdir()) == []

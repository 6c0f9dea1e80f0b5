"""The no-op server, started and stopped like a broker."""

import sys
from collections.abc import Mapping

from bench.brokers import ROOT, Broker


class NoOp(Broker):
    """The ceiling: the same event loop, reading frames and answering each Produce with a fixed reply."""

    @property
    def speaks_kafka(self) -> bool:
        return False

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.noop", str(self.port)]

    def environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(ROOT)}

    def ready(self) -> bool:
        try:
            self.client(timeout_seconds=2.0).__exit__(None, None, None)
        except OSError:
            return False
        return True


class DurableNoOp(NoOp):
    """The floor: the same, and what came is in a new file on the disk before it is answered."""

    def command(self) -> list[str]:
        return [*super().command(), str(self.folder)]

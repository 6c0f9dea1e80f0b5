"""Plans with transactions."""

from typing import Any

from tests.sim.simulated_producers import Load
from tests.sim.simulated_transactions import TransactionLoad

TRANSACTIONS: dict[str, Any] = {
    "topics": {"t": 2},
    "jobs": (TransactionLoad(), TransactionLoad(version=1)),
    "load": Load(batches=10, longest_pause=1.0),
    "idempotent_producers": 1,
    "plain_producers": 0,
    "consumers": 1,
    "kinds": ("kill", "pause", "late upload", "stop", "cut", "delay", "end lease", "set clock", "add broker"),
    "longest_skew_ms": 0,
}
"""One job of each protocol, under everything that does not delete records."""

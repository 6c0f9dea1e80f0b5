"""The counters of transactions; who counts: `transactions/coordinator.py`, `upkeep.py` and `completer.py`."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from kafscale.ops import metric_families as families
from kafscale.ops.counted import counted_by, observed
from kafscale.ops.histogram import Histogram


class TransactionResult(StrEnum):
    """The decision on a transaction, and its cause if the client did not ask for it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    FENCED = "fenced"
    TIMED_OUT = "timed_out"


@dataclass(slots=True, eq=False)
class TransactionMetrics:
    """Transactions that this broker decided and completed."""

    ended: Counter[str] = counted_by(families.TRANSACTIONS_ENDED, TransactionResult)
    completion: Histogram = observed(families.TRANSACTION_COMPLETION)

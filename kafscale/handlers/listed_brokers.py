"""The brokers that Metadata names: those that live, and for a while those whose lease has ended.

When the metadata store was away for longer than a lease, all brokers have lost theirs, and register again one
after the other within a second. Clients that hear of one broker alone in between drop all that they know of the
others: librdkafka, from 2.10 on, ends their connections with everything that is on its way, and has been seen not
to go on with some partitions. In Kafka, too, brokers stay known while the controllers are away. So a broker is
named for as long again as its lease lasts, unless it said that it stops (docs/decisions/0035-listed-brokers.md).
"""

from collections.abc import Callable

from kafscale.metadata.model import BrokerRecord, BrokerState
from kafscale.metadata.view import ClusterView


class ListedBrokers:
    """Follows the view's brokers. `keep_ms`: how long one is named that went without a word.

    Who leads, coordinates or is read from never is one of these: that is the view's to say.
    """

    def __init__(self, view: ClusterView, keep_ms: int, now_ms: Callable[[], int]) -> None:
        """`now_ms`: of a clock that is never set."""
        self._view = view
        self._keep_ms = keep_ms
        self._now_ms = now_ms
        self._known = view.brokers()
        self._gone: dict[int, tuple[int, BrokerRecord]] = {}
        view.subscribe_brokers(self._changed)

    def brokers(self) -> tuple[BrokerRecord, ...]:
        """Ascending by id."""
        live = self._view.brokers()
        if not self._gone:
            return live
        now_ms = self._now_ms()
        self._gone = {broker_id: kept for broker_id, kept in self._gone.items() if kept[0] > now_ms}
        gone = (record for _, record in self._gone.values())
        return tuple(sorted((*live, *gone), key=lambda record: record.broker_id))

    def _changed(self) -> None:
        before, self._known = self._known, self._view.brokers()
        live = {record.broker_id for record in self._known}
        until_ms = self._now_ms() + self._keep_ms
        for record in before:
            if record.broker_id not in live and record.state is BrokerState.RUNNING:
                self._gone[record.broker_id] = until_ms, record
        for broker_id in live:
            self._gone.pop(broker_id, None)

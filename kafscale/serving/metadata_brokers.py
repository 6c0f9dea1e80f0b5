"""The brokers that Metadata names: those that live, this one, and those that are not known to be gone.

Clients take a broker that Metadata does not name for decommissioned: librdkafka, from 2.10 on, ends its connection
with everything in flight, and may have no broker left to ask. In Kafka brokers stay known while the controllers
are away. Here all leases end when the metadata store is away for longer than a lease, and return one by one
(docs/decisions/0046-brokers-known-to-be-gone.md).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from kafscale.cluster.view import ClusterView
from kafscale.metadata.model import BrokerRecord, BrokerState
from kafscale.metadata.store_contact import StoreContact

IN_DOUBT_MS: Final = 5 * 60 * 1000
"""The time for which a broker is named that vanished while the metadata store was away, and has not returned.

Clients keep an answer of Metadata for as long, by Kafka's default of `metadata.max.age.ms`.
"""


class _Gone(NamedTuple):
    record: BrokerRecord
    named_until_ms: int


class MetadataBrokers:
    """Follows the view's brokers. `myself` gives this broker, which is always named.

    Besides the live ones it names a broker that vanished without announcing that it stops: for `keep_ms`, or for
    `IN_DOUBT_MS` if the store was silent around that time, until another broker has its id or address. Leaders,
    coordinators and read replicas are never such brokers: the view decides those.
    """

    def __init__(
        self,
        view: ClusterView,
        myself: Callable[[], BrokerRecord],
        keep_ms: int,
        contact: StoreContact,
        now_ms: Callable[[], int],
    ) -> None:
        """`now_ms`: of a clock that is never set."""
        self._view = view
        self._myself = myself
        self._keep_ms = keep_ms
        self._contact = contact
        self._now_ms = now_ms
        self._known = view.brokers()
        self._gone: dict[int, _Gone] = {}
        view.subscribe_brokers(self._changed)

    def live(self) -> tuple[BrokerRecord, ...]:
        """The live brokers, by the view, and this one; ascending by id."""
        live = self._view.brokers()
        myself = self._myself()
        if any(record.broker_id == myself.broker_id for record in live):
            return live
        # Its first registration says that it starts.
        return _sorted(*live, replace(myself, state=BrokerState.RUNNING))

    def brokers(self) -> tuple[BrokerRecord, ...]:
        """The brokers that Metadata names, ascending by id."""
        live = self.live()
        if not self._gone:
            return live
        now_ms = self._now_ms()
        self._gone = {each: gone for each, gone in self._gone.items() if gone.named_until_ms > now_ms}
        alive = {record.broker_id for record in live}
        return _sorted(*live, *(gone.record for each, gone in self._gone.items() if each not in alive))

    def controller_id(self) -> int:
        """The broker of `live` with the lowest id."""
        return self.live()[0].broker_id

    def _changed(self) -> None:
        before, self._known = self._known, self._view.brokers()
        live = {record.broker_id for record in self._known}
        keep_ms = max(self._keep_ms, IN_DOUBT_MS) if self._contact.was_interrupted else self._keep_ms
        until_ms = self._now_ms() + keep_ms
        for record in before:
            if record.broker_id not in live and record.state is BrokerState.RUNNING:
                self._gone[record.broker_id] = _Gone(record, until_ms)
        taken = {(record.host, record.port) for record in self._known}
        self._gone = {
            each: gone
            for each, gone in self._gone.items()
            if each not in live and (gone.record.host, gone.record.port) not in taken
        }


def _sorted(*records: BrokerRecord) -> tuple[BrokerRecord, ...]:
    return tuple(sorted(records, key=lambda record: record.broker_id))

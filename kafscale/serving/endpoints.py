"""The brokers that a client can reach, by the listener that it is connected to (KIP-103)."""

from collections.abc import Iterable, Iterator

from kafscale.metadata.model import BrokerRecord, Endpoint, ListenerName


def reachable(
    brokers: Iterable[BrokerRecord], listener: ListenerName
) -> Iterator[tuple[BrokerRecord, Endpoint]]:
    """The brokers that have this listener, with its address."""
    for broker in brokers:
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            yield broker, endpoint

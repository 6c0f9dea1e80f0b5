"""Which brokers a client can reach, by the listener that it came to (KIP-103)."""

from collections.abc import Iterable, Iterator

from kafscale.metadata.model import BrokerRecord, Endpoint, ListenerName


def reachable(
    brokers: Iterable[BrokerRecord], listener: ListenerName
) -> Iterator[tuple[BrokerRecord, Endpoint]]:
    """Those of the brokers that have this listener, with where it is."""
    for broker in brokers:
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            yield broker, endpoint

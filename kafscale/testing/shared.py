"""A broker that tests share: each has topics and groups of its own."""

import itertools
import uuid
from collections.abc import Mapping

from kafscale.testing.broker import KafkaBroker, Topics

_numbers = itertools.count(1)


class SharedKafka(Topics):
    """One test's part of a broker. What it creates by `topic` goes when the test is over.

    Clients of other tests may use the broker at the same time, so faults cannot be ordered here: take a
    `KafkaBroker` of your own (the fixture `kafka_broker`).
    """

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self._home = broker._home
        self._own: list[str] = []

    @property
    def bootstrap(self) -> str:
        """The broker's address for clients' `bootstrap.servers`: host and port."""
        return self._broker.bootstrap

    def topic(
        self, prefix: str = "topic", partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> str:
        """Create a topic with a name that no other test has, and return the name. Raises `RequestError`."""
        name = self.create_topic(_unique(prefix), partitions, configs)
        self._own.append(name)
        return name

    def group(self, prefix: str = "group") -> str:
        """An id for a consumer group that no other test has."""
        return _unique(prefix)

    def close(self) -> None:
        """Delete the topics; those that the test has deleted itself are no error."""
        existing = set(self.topics())
        while self._own:
            name = self._own.pop()
            if name in existing:
                self.delete_topic(name)


def _unique(prefix: str) -> str:
    return f"{prefix}-{next(_numbers)}-{uuid.uuid4().hex[:8]}"

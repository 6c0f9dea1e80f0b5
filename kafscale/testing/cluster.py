"""Several brokers for tests, which share stores in memory and one thread."""

from typing import Any

from kafscale.testing.broker import KafkaBroker, StartedTopics, new_home
from kafscale.testing.orders import OrderedFaults, Troubles


class KafkaCluster(StartedTopics, Troubles):
    """A cluster of `size` brokers with the ids 0, 1, ...; reachable by any client at `bootstrap`.

    with KafkaCluster(3) as cluster:
        cluster.create_topic("orders", partitions=6)
        cluster.brokers[0].kill()

    Keywords: see `KafkaBroker`; they hold for all brokers. Faults that are ordered of the cluster are those of any of
    its brokers, `cluster.brokers[0].fail(...)` of one.
    """

    def __init__(self, size: int = 3, *, metrics: bool = False, **settings: Any) -> None:
        if size < 1:
            raise ValueError(f"a cluster of {size} brokers is not legal: it must have at least 1")
        if "broker_id" in settings:
            raise TypeError("'broker_id' is not for a cluster: its brokers have the ids from 0 on")
        each = [{**settings, "broker_id": broker_id} for broker_id in range(size)]
        self._home = new_home("kafscale-cluster", each, serves_metrics=metrics)
        self.brokers = tuple(KafkaBroker._of(self._home, index) for index in range(size))

    @property
    def _faults(self) -> OrderedFaults:
        return self._home.faults

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers for clients' `bootstrap.servers`, with commas between."""
        return ",".join(broker.bootstrap for broker in self.brokers)

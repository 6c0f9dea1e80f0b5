"""The state of transactions once the trouble is over."""

from collections.abc import Iterable
from functools import partial

from tests.support import wire
from tests.support.cluster import AWAY, Cluster
from tests.support.group_apis import committed, find_coordinator
from tests.support.ledger import Place
from tests.support.waiting import PATIENCE_SEC, wait_until


def wait_until_nothing_is_open(cluster: Cluster, places: Iterable[Place]) -> None:
    """Transactions of producers that vanished are aborted when their time is over: consumers wait no longer."""
    for place in places:
        wait_until(partial(_is_stable, cluster, place), f"nothing is open in {place}", PATIENCE_SEC)


def _is_stable(cluster: Cluster, place: Place) -> bool:
    try:
        broker = cluster.brokers[cluster.leaders(place[0])[place[1]]]
        with wire.connect(broker) as connection:
            part = wire.fetch(connection, place[0], {place[1]: 0}, max_wait_ms=0)[place[1]]
    except AWAY:
        return False
    return bool(part.error_code == 0 and part.last_stable_offset == part.high_watermark)


def committed_position(cluster: Cluster, group: str, place: Place) -> int:
    """The offset that the group has committed in a partition."""
    with wire.connect(cluster.any_live()) as connection:
        coordinator = find_coordinator(connection, [group])[group].node_id
    with wire.connect(cluster.brokers[coordinator]) as connection:
        return committed(connection, group, [place])[place].offset

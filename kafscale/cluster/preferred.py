"""Which broker each of a topic's partitions, or each group shard, should be with: rendezvous hashing, evenly.

Every pair of an item and a broker has a weight that any broker can compute. An item prefers the broker with the
highest weight that has room: of `count` items no broker gets more than its share, rounded up, and no more
brokers get one above the share rounded down than must. So the load of one topic is even, all that know
the same brokers come to the same answer, and a broker that comes or goes moves little more than its own share.
"""

from collections.abc import Callable, Mapping, Sequence

from kafscale.cluster.weights import Seeds, weight

Best = Callable[[Mapping[int, object], int], int]
"""Of the brokers that have room, the one with the highest weight of an item: the first of several."""


def preferred_brokers(name: str, count: int, broker_ids: Sequence[int]) -> tuple[int, ...]:
    """The preferred broker of each of `count` items that share `name`; empty when there is no broker."""
    return spread(count, broker_ids, best_by_weight(Seeds(name)))


def best_by_weight(seeds: Seeds) -> Best:
    """Computes the weights of all that have room."""

    def best(free: Mapping[int, object], index: int) -> int:
        return max(free, key=lambda broker_id: weight(seeds[broker_id], index))

    return best


def spread(count: int, broker_ids: Sequence[int], best: Best) -> tuple[int, ...]:
    """The broker of each of `count` items: for one after the other the best of those that have room."""
    if not broker_ids:
        return ()
    if len(broker_ids) == 1:
        return (broker_ids[0],) * count
    free: dict[int, object] = dict.fromkeys(broker_ids)
    share, left_over = divmod(count, len(broker_ids))
    taken = dict.fromkeys(broker_ids, 0)
    preferred = []
    for index in range(count):
        chosen = best(free, index)
        preferred.append(chosen)
        now = taken[chosen] = taken[chosen] + 1
        if now < share:
            continue
        left_over -= now > share
        if now > share or not left_over:
            del free[chosen]
        if now > share and not left_over:  # The last that may have one more than the others.
            free = {broker_id: None for broker_id in free if taken[broker_id] < share}
    return tuple(preferred)

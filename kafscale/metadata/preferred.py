"""Which broker each of a topic's partitions, or each group shard, should be with: rendezvous hashing, evenly.

Every pair of an item and a broker has a weight that anybody can compute. An item prefers the broker with the
highest weight that has room: of `count` items no broker gets more than its share, rounded up, and no more
brokers get one above the share rounded down than must. So the load of one topic is even, everybody who knows
the same brokers comes to the same answer, and a broker that comes or goes moves little more than its own share.
"""

from collections.abc import Sequence
from hashlib import blake2b

_MASK = 2**64 - 1


def preferred_brokers(name: str, count: int, broker_ids: Sequence[int]) -> tuple[int, ...]:
    """The preferred broker of each of `count` items that share `name`; empty when there is no broker."""
    if not broker_ids:
        return ()
    if len(broker_ids) == 1:
        return (broker_ids[0],) * count
    seeds = {broker_id: _seed(name, broker_id) for broker_id in broker_ids}
    share, left_over = divmod(count, len(broker_ids))
    taken = dict.fromkeys(seeds, 0)
    preferred = []
    for index in range(count):
        chosen = max(seeds, key=lambda broker_id: _weight(seeds[broker_id], index))
        preferred.append(chosen)
        taken[chosen] += 1
        left_over -= taken[chosen] > share
        if taken[chosen] > share or (taken[chosen] == share and not left_over):
            del seeds[chosen]
        if taken[chosen] > share and not left_over:  # The last that may have one more than the others.
            seeds = {broker_id: seed for broker_id, seed in seeds.items() if taken[broker_id] < share}
    return tuple(preferred)


def _seed(name: str, broker_id: int) -> int:
    digest = blake2b(f"{name}/{broker_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def _weight(seed: int, index: int) -> int:
    """The finalizer of SplitMix64: neighbouring indexes get unrelated weights."""
    mixed = (seed + index * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)

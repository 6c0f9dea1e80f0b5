"""`preferred_brokers` of many names again and again, as brokers come and go: only what a change makes different.

Theory of operation. For each item the few brokers with the highest weights are kept, best first, of all brokers
that are known. An item's preferred broker is the first of these that is there and has room; when none is, the
weights of all that have room are computed, as they are without a ranking. So the answer is the same in any case.

- A broker that goes stays in the rankings and is skipped, and comes back at no cost.
- Of a broker that was not known its own weights are computed, one for each item.
- When too many of those that are known are gone, everything is ranked again.
"""

from array import array
from collections.abc import Mapping
from typing import Final

from kafscale.cluster.preferred import Best, best_by_weight, preferred_brokers, spread
from kafscale.cluster.weights import COLUMN_ITEMS, WEIGHTS, Seeds, column, weight

RANKED: Final = 8
"""So many brokers are kept for each item. With no more brokers than that nothing is ranked."""

RANKING_BYTES: Final = 500
"""The approximate memory of a ranking, beside `RANKED_ITEM_BYTES` for each item."""

RANKED_ITEM_BYTES: Final = RANKED * 4 + 8


class Rankings:
    """Ranks the brokers for names, and keeps that until `forget` is called with the name."""

    def __init__(self) -> None:
        self._known: list[int] = []  # In the order in which they came; a ranking has the first so many.
        self._brokers: tuple[int, ...] = ()
        self._kept: dict[str, _Ranking] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def preferred(self, name: str, count: int, broker_ids: tuple[int, ...]) -> tuple[int, ...]:
        """As `preferred_brokers`. `broker_ids`: ascending."""
        if len(broker_ids) <= RANKED:
            return preferred_brokers(name, count, broker_ids)
        if broker_ids != self._brokers:
            self._brokers = broker_ids
            self._know(broker_ids)
        seeds = Seeds(name)
        ranking = self._kept.get(name)
        if ranking is None or ranking.count != count or not ranking.is_like(self._known):
            ranking = self._kept[name] = _Ranking(seeds, count, self._known)
        else:
            ranking.add(seeds, self._known)
        return spread(count, broker_ids, ranking.best(seeds))

    def forget(self, name: str) -> None:
        """The name is asked for no more; no error when it never was."""
        self._kept.pop(name, None)

    def _know(self, broker_ids: tuple[int, ...]) -> None:
        known = set(self._known)
        coming = [broker_id for broker_id in broker_ids if broker_id not in known]
        if len(known) + len(coming) > 2 * len(broker_ids):
            self._known = list(broker_ids)
            self._kept.clear()
        else:
            self._known += coming


class _Ranking:
    """For each of a name's items the brokers with the highest weights of `known`, of which there are enough."""

    __slots__ = ("_best", "_known_count", "_least", "count")

    def __init__(self, seeds: Seeds, count: int, known: list[int]) -> None:
        self.count = count
        self._known_count = len(known)
        self._best = array("i")
        self._least = array("Q")  # The weight of the last that is kept for an item.
        brokers = sorted(known)  # Of several with the same weight the first is the best.
        likely = WEIGHTS - WEIGHTS * 2 * RANKED // len(brokers)
        for start in range(0, count, COLUMN_ITEMS):
            stop = min(start + COLUMN_ITEMS, count)
            columns = [column(seeds[broker_id], start, stop) for broker_id in brokers]
            for row in zip(*columns, strict=True):
                places = [place for place, each in enumerate(row) if each >= likely]
                if len(places) < RANKED:
                    places = list(range(len(row)))
                places.sort(key=row.__getitem__, reverse=True)
                self._best.extend([brokers[place] for place in places[:RANKED]])
                self._least.append(row[places[RANKED - 1]])

    def is_like(self, known: list[int]) -> bool:
        """True if so few are missing that it is less work to add them than to rank all."""
        return 8 * (len(known) - self._known_count) <= len(known)

    def add(self, seeds: Seeds, known: list[int]) -> None:
        """Rank those that were not known."""
        for broker_id in known[self._known_count :]:
            for start in range(0, self.count, COLUMN_ITEMS):
                stop = min(start + COLUMN_ITEMS, self.count)
                weights, least = column(seeds[broker_id], start, stop), self._least[start:stop]
                for index, (new, last) in enumerate(zip(weights, least, strict=True), start):
                    if new >= last:
                        self._insert(seeds, index, broker_id)
        self._known_count = len(known)

    def _insert(self, seeds: Seeds, index: int, broker_id: int) -> None:
        at = index * RANKED
        ranked = [(-weight(seeds[each], index), each) for each in (*self._best[at : at + RANKED], broker_id)]
        ranked = sorted(ranked)[:RANKED]
        self._best[at : at + RANKED] = array("i", [each for _, each in ranked])
        self._least[index] = -ranked[-1][0]

    def best(self, seeds: Seeds) -> Best:
        """Looks at the ranking first."""
        ranked, otherwise = self._best, best_by_weight(seeds)

        def best(free: Mapping[int, object], index: int) -> int:
            at = index * RANKED
            broker_id = ranked[at]
            if broker_id in free:
                return broker_id
            for broker_id in ranked[at + 1 : at + RANKED]:
                if broker_id in free:
                    return broker_id
            return otherwise(free, index)

        return best

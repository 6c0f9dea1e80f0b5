"""Laws of the parts that count bytes, for any sequence of calls."""

from collections import Counter
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from kafscale.cache.lru import ByteLimitedLru
from kafscale.memory.memory_budget import MemoryBudget
from kafscale.memory.slab import SLAB_CAPACITIES_BYTES, Slab, SlabPool

SIZES = st.integers(0, 60)
CACHE_CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5), SIZES),
        st.tuples(st.just("get"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("remove"), st.integers(0, 5), st.just(0)),
    ),
    max_size=60,
)


@given(CACHE_CALLS, st.integers(0, 100))
def test_cache_keeps_its_limit_and_evicts_each_value_once(
    calls: list[tuple[str, int, int]], limit_bytes: int
) -> None:
    dropped: Counter[int] = Counter()
    cache: ByteLimitedLru[int, int] = ByteLimitedLru(limit_bytes, lambda value: dropped.update([value]))
    held: dict[int, tuple[int, int]] = {}
    put = 0
    for call, key, size_bytes in calls:
        match call:
            case "put":
                cache.put(key, put, size_bytes)
                held[key] = (put, size_bytes)
                put += 1
            case "get":
                cache.get(key)
            case _:
                cache.remove(key)
        assert cache.used_bytes <= limit_bytes
        held = {key: entry for key, entry in held.items() if not dropped[entry[0]]}
        assert {key: cache.get(key) for key in held} == {key: entry[0] for key, entry in held.items()}
        assert (cache.used_bytes, len(cache)) == (sum(size for _, size in held.values()), len(held))
    for key in range(6):
        cache.remove(key)
    assert dropped == Counter(range(put))


BUDGET_CALLS = st.lists(
    st.tuples(st.sampled_from(["charge", "try", "release", "forget"]), st.integers(0, 150)), max_size=80
)


@given(BUDGET_CALLS, st.integers(1, 100))
def test_budget_is_never_negative_and_serves_in_order(calls: list[tuple[str, int]], limit_bytes: int) -> None:
    budget = MemoryBudget(limit_bytes)
    held: list[int] = []  # sizes that were charged and not released
    line: list[tuple[int, Callable[[], None]]] = []  # who waits, in the order of asking

    def waiter(size_bytes: int) -> Callable[[], None]:
        def served() -> None:
            assert line.pop(0) == (size_bytes, served)
            held.append(size_bytes)

        return served

    for call, number in calls:
        match call:
            case "charge":
                budget.charge(number)
                held.append(number)
            case "try":
                if budget.has_room:
                    budget.charge(number)
                    held.append(number)
                else:
                    line.append((number, waiter(number)))
                    budget.when_free(*line[-1])
            case "release" if held:
                budget.release(held.pop(number % len(held)))
            case "forget" if line:
                _, leaving = line.pop(number % len(line))
                budget.forget(leaving)
        assert budget.used_bytes == sum(held) >= 0
        assert not line or budget.used_bytes
    while held:
        budget.release(held.pop())
    assert not line
    assert budget.used_bytes == 0


POOL_CALLS = st.lists(
    st.tuples(st.booleans(), st.integers(0, SLAB_CAPACITIES_BYTES[1]), st.integers(0, 1 << 17)), max_size=30
)


@given(POOL_CALLS, st.integers(0, 1 << 19))
def test_slab_has_one_owner_and_spares_are_limited(
    calls: list[tuple[bool, int, int]], spare_limit_bytes: int
) -> None:
    pool = SlabPool(spare_limit_bytes)
    in_use: list[Slab] = []
    for acquire, size_bytes, wanted_bytes in calls:
        if acquire or not in_use:
            slab = pool.acquire(size_bytes, wanted_bytes)
            assert slab.room_bytes >= size_bytes
            assert all(slab is not other for other in in_use)
            slab.used_bytes = size_bytes
            in_use.append(slab)
        else:
            pool.release(in_use.pop(size_bytes % len(in_use)))
        assert 0 <= pool.spare_bytes <= spare_limit_bytes

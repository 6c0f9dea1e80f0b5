"""The map with a byte limit."""

from kafscale.cache.lru import ByteLimitedLru


def lru(limit_bytes: int) -> tuple[ByteLimitedLru[str, str], list[str]]:
    dropped: list[str] = []
    return ByteLimitedLru(limit_bytes, dropped.append), dropped


def test_what_was_not_used_for_longest_leaves_first() -> None:
    cache, dropped = lru(30)
    for name in "abc":
        cache.put(name, name.upper(), 10)
    assert cache.get("a") == "A"
    cache.put("d", "D", 10)
    assert dropped == ["B"]
    assert [cache.get(name) for name in "abcd"] == ["A", None, "C", "D"]
    assert (cache.used_bytes, len(cache), cache.evictions) == (30, 3, 1)


def test_one_large_value_drives_out_several() -> None:
    cache, dropped = lru(30)
    for name in "abc":
        cache.put(name, name.upper(), 10)
    cache.put("d", "D", 25)
    assert dropped == ["A", "B", "C"]
    assert cache.used_bytes == 25


def test_value_larger_than_the_limit_evicts_nothing() -> None:
    cache, dropped = lru(30)
    cache.put("a", "A", 10)
    cache.put("b", "B", 31)
    assert dropped == ["B"]
    assert cache.get("a") == "A"


def test_a_limit_of_zero_keeps_nothing() -> None:
    cache, dropped = lru(0)
    cache.put("a", "A", 1)
    assert (dropped, len(cache), cache.used_bytes) == (["A"], 0, 0)


def test_a_replaced_value_is_dropped_and_counted_no_more() -> None:
    cache, dropped = lru(30)
    cache.put("a", "A", 10)
    cache.put("a", "B", 20)
    assert dropped == ["A"]
    assert (cache.get("a"), cache.used_bytes) == ("B", 20)


def test_a_removed_value_is_dropped_once() -> None:
    cache, dropped = lru(30)
    cache.put("a", "A", 10)
    cache.remove("a")
    cache.remove("a")
    assert (dropped, cache.used_bytes, cache.evictions) == (["A"], 0, 0)

"""The sorted map under the embedded stores."""

from kafscale.metadata.keyspace import Keyspace
from kafscale.metadata.store import Changes, Delete, KeyValue


def item(key: str, revision: int, lease: int = 0) -> KeyValue:
    return KeyValue(key=key, value=b"v", mod_revision=revision, lease=lease)


def test_it_begins_with_what_it_is_given() -> None:
    keyspace = Keyspace([item("b", 2), item("a", 1, lease=7)], revision=5)
    assert [each.key for each in keyspace] == ["a", "b"]
    assert keyspace.range("").revision == keyspace.revision == 5
    assert keyspace.keys_of_lease(7) == {"a"}


def test_keys_stay_sorted_as_they_come_and_go() -> None:
    keyspace = Keyspace()
    for revision, key in enumerate(["m", "c", "x", "a"], start=1):
        keyspace.apply(Changes(puts_and_deletes=(item(key, revision),), revision=revision))
    keyspace.apply(Changes(puts_and_deletes=(Delete("c"), item("d", 5), item("m", 5)), revision=5))
    assert list(keyspace) == [item("a", 4), item("d", 5), item("m", 5), item("x", 3)]
    assert keyspace.revision == 5
    assert keyspace.get("c") is None


def test_a_key_belongs_to_its_last_lease() -> None:
    keyspace = Keyspace([item("a", 1, lease=7), item("b", 1, lease=7), item("c", 1, lease=7)], revision=1)
    moved = (item("a", 2, lease=8), item("b", 2), Delete("c"))
    keyspace.apply(Changes(puts_and_deletes=moved, revision=2))
    assert keyspace.keys_of_lease(7) == frozenset()
    assert keyspace.keys_of_lease(8) == {"a"}

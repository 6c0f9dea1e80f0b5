"""One read of all access rules serves every user of a cluster."""

from typing import Any

import pytest

from kafscale.formats.acl_record import STORED_ACL
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Compare, Put, Snapshot
from kafscale.operator.stores.same_cluster_store import SameClusterStore
from kafscale.operator.users.rule_keys import AGE_SEC, RuleKeys

ALICE = "acls/topic/literal/t/User:alice/*/read/allow"
BOB = "acls/topic/prefixed/a%2Fb/User:bob/10.0.0.0%2F8/all/deny"
UNREADABLE = "acls/moon/literal/t/User:alice/*/read/perhaps"


class CountedStore(SameClusterStore):
    """Counts reads of all rules."""

    def __init__(self, store: MemoryStore, revision: int) -> None:
        super().__init__(store, revision)
        self.reads = 0

    async def range(self, prefix: str) -> Snapshot:
        self.reads += 1
        return await super().range(prefix)


class Clock:
    now_sec = 0.0

    def __call__(self) -> float:
        return self.now_sec


@pytest.fixture
async def store() -> CountedStore:
    memory = MemoryStore()
    made = await memory.transact([Compare(keys.CLUSTER, 0)], [Put(keys.CLUSTER, b"c")])
    await memory.transact([], [Put(key, STORED_ACL) for key in (ALICE, BOB, UNREADABLE)])
    return CountedStore(memory, made.revision)


async def put(store: Any, key: str) -> None:
    await store.transact([], [Put(key, STORED_ACL)])


async def test_rules_are_found_by_principal(store: CountedStore) -> None:
    rules = RuleKeys(Clock())
    assert await rules.of_principal(store, "User:alice") == {ALICE, UNREADABLE}
    assert await rules.of_principal(store, "User:bob") == {BOB}
    assert await rules.of_principal(store, "User:carol") == frozenset()
    assert store.reads == 1


async def test_read_is_shared_until_it_is_too_old(store: CountedStore) -> None:
    clock = Clock()
    rules = RuleKeys(clock)
    await rules.of_principal(store, "User:alice")
    await put(store, other := ALICE.replace("/t/", "/u/"))
    clock.now_sec = AGE_SEC - 0.1
    assert other not in await rules.of_principal(store, "User:alice")
    clock.now_sec = AGE_SEC
    assert other in await rules.of_principal(store, "User:alice")
    assert store.reads == 2


async def test_own_writes_are_known_without_a_read(store: CountedStore) -> None:
    rules = RuleKeys(Clock())
    await rules.of_principal(store, "User:alice")
    rules.changed(store, "User:alice", ["acls/new"], [ALICE])
    assert await rules.of_principal(store, "User:alice") == {UNREADABLE, "acls/new"}
    assert store.reads == 1
    rules.forget(store)
    assert await rules.of_principal(store, "User:alice") == {ALICE, UNREADABLE}
    assert store.reads == 2


async def test_clusters_have_reads_of_their_own(store: CountedStore) -> None:
    other = CountedStore(MemoryStore(), 1)
    rules = RuleKeys(Clock())
    assert await rules.of_principal(store, "User:bob") == {BOB}
    assert await rules.of_principal(other, "User:bob") == frozenset()

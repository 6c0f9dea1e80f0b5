"""Rules in the metadata store: created, deleted, watched by several brokers, and unreadable ones."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import StoreUnavailableError
from kafscale.formats.acl_record import STORED_ACL, AclBinding, acl_key, decode_acl
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Compare, Delete, KeyValue, Put
from kafscale.protocol.acl_codes import Operation, PatternType, Permission, ResourceType
from kafscale.security import acl_store
from kafscale.security.acl_feeder import AclFeeder
from kafscale.security.acl_filter import AclFilter
from kafscale.security.acl_store import AclStore, TooManyRulesError
from kafscale.security.authorizer import Authorizer
from kafscale.security.stored_acls import StoredAcls
from kafscale.tasks.owner import TaskOwner
from tests.security.acl_rules import ALLOW, DENY, GROUP, LITERAL, PREFIXED, TOPIC, Refusals, allows, rule
from tests.support.waiting import wait_until_async

READ, WRITE, ALL = Operation.READ, Operation.WRITE, Operation.ALL
EVERYTHING = AclFilter(ResourceType.ANY, PatternType.ANY, None, None, None, Operation.ANY, Permission.ANY)


def orders(user: str = "alice", **changes: Any) -> AclBinding:
    return rule(TOPIC, "orders", LITERAL, f"User:{user}", "*", READ, ALLOW)._replace(**changes)


class OneBroker:
    """A broker's parts for the rules of a store."""

    def __init__(self, store: MemoryStore) -> None:
        self.authorizer = Authorizer((), Refusals())
        self.feeder = AclFeeder(store, self.authorizer, retry_delay_sec=0)
        self.acls = AclStore(store, self.feeder)

    def rules(self) -> set[AclBinding]:
        return {one for one in self.feeder.stored.walk() if one is not None}


@asynccontextmanager
async def brokers(store: MemoryStore, count: int = 1) -> AsyncIterator[list[OneBroker]]:
    tasks = TaskOwner()
    made = [OneBroker(store) for _ in range(count)]
    try:
        for one in made:
            tasks.spawn(one.feeder.run(), "access rules")
            await one.feeder.ready()
        yield made
    finally:
        await tasks.close()
        await store.close()


async def test_created_rule_counts_when_the_creation_is_answered() -> None:
    async with brokers(MemoryStore()) as (one,):
        assert not allows(one.authorizer, "alice", READ, TOPIC, "orders")
        await one.acls.create([orders()])
        assert allows(one.authorizer, "alice", READ, TOPIC, "orders")
        await one.acls.delete([EVERYTHING])
        assert not allows(one.authorizer, "alice", READ, TOPIC, "orders")


async def test_creating_twice_is_creating_once() -> None:
    store = MemoryStore()
    async with brokers(store) as (one,):
        await one.acls.create([orders(), orders("bob"), orders()])
        before = await store.range(keys.ACLS)
        await one.acls.create([orders(), orders("carol")])
        after = await store.range(keys.ACLS)
        assert len(before.items) == 2
        assert len(after.items) == 3
        # Not even written again.
        assert [item for item in after.items if item.key != acl_key(orders("carol"))] == list(before.items)
        assert one.rules() == {orders(), orders("bob"), orders("carol")}


async def test_creation_replaces_an_unreadable_record() -> None:
    store = MemoryStore()
    await store.transact([], [Put(acl_key(orders()), b'{"version":9}')])
    async with brokers(store) as (one,):
        assert not allows(one.authorizer, "alice", READ, TOPIC, "orders")
        await one.acls.create([orders()])
        assert allows(one.authorizer, "alice", READ, TOPIC, "orders")
        assert one.feeder.stored.unreadable_count == 0


async def test_batches_larger_than_a_transaction_are_split() -> None:
    store = MemoryStore()
    many = [orders(str(number)) for number in range(3 * store.max_operations + 1)]
    async with brokers(store, 2) as (one, other):
        await one.acls.create(many)
        assert one.rules() == set(many)
        (deleted,) = await other.acls.delete([EVERYTHING])
        assert set(deleted) == set(many)
        assert other.rules() == set()
        assert (await store.range(keys.ACLS)).items == ()


async def test_other_broker_deletes_what_it_has_not_seen() -> None:
    store = MemoryStore()
    async with brokers(store) as (one,):
        late = OneBroker(store)
        await one.acls.create([orders()])
        late.feeder.wait_for = lambda revision: asyncio.sleep(0)  # type: ignore[method-assign]
        assert await late.acls.delete([EVERYTHING]) == [[orders()]]
        assert await store.get(acl_key(orders())) is None


async def test_revoked_rule_is_seen_by_every_broker() -> None:
    async with brokers(MemoryStore(), 3) as all_of_them:
        one, *others = all_of_them
        await one.acls.create([orders(), orders(permission=DENY, operation=WRITE)])
        for other in others:
            await _until(partial(allows, other.authorizer, "alice", READ, TOPIC, "orders"))
        await one.acls.delete([EVERYTHING])
        await _until(
            lambda: not any(allows(each.authorizer, "alice", READ, TOPIC, "orders") for each in others)
        )


async def _until(condition: Callable[[], bool]) -> None:
    async def holds() -> bool:
        return condition()

    await wait_until_async(holds, "the rules are seen")


async def test_rule_created_again_meanwhile_is_deleted() -> None:
    store = MemoryStore()

    class Meddled(MemoryStore):
        async def transact(self, compares: Any, operations: Any) -> Any:
            if any(isinstance(each, Delete) for each in operations) and not self.meddled:
                self.meddled = True
                await super().transact([], [Delete(acl_key(orders()))])
                await super().transact([Compare(acl_key(orders()), 0)], [Put(acl_key(orders()), STORED_ACL)])
                await super().transact([], [Delete(acl_key(orders("bob")))])
            return await super().transact(compares, operations)

        meddled = False

    store = Meddled()
    async with brokers(store) as (one,):
        await one.acls.create([orders(), orders("bob")])
        await one.acls.delete([EVERYTHING])
        assert (await store.range(keys.ACLS)).items == ()


async def test_too_many_rules_at_once_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_store, "MAX_CHANGES", 10)
    async with brokers(MemoryStore()) as (one,):
        many = [orders(str(number)) for number in range(11)]
        await one.acls.create(many)
        with pytest.raises(TooManyRulesError):
            await one.acls.delete([EVERYTHING])
        assert one.rules() == set(many)


async def test_broken_watch_shows_what_was_missed() -> None:
    class Breaking(MemoryStore):
        broken = 0

        def watch(self, prefix: str) -> Any:
            if self.broken:
                self.broken -= 1
                raise StoreUnavailableError("away")
            return super().watch(prefix)

    store = Breaking()
    store.broken = 3
    await store.transact([], [Put(acl_key(orders()), STORED_ACL)])
    async with brokers(store) as (one,):
        assert one.rules() == {orders()}


# --- unreadable records


async def test_unreadable_record_denies_and_hurts_nothing_else() -> None:
    store = MemoryStore()
    denied = orders(permission=DENY, operation=ALL)
    async with brokers(store) as (one,):
        await one.acls.create([orders(), orders(name="other"), orders("bob")])
        await store.transact([], [Put(acl_key(denied), b'{"version":2}'), Put("acls/rubbish", b"")])
        await _until(lambda: one.feeder.stored.unreadable_count == 2)
        assert not allows(one.authorizer, "alice", READ, TOPIC, "orders")
        assert allows(one.authorizer, "alice", READ, TOPIC, "other")
        assert allows(one.authorizer, "bob", READ, TOPIC, "orders")
        # It is shown as what it stands for, and goes with it.
        assert denied in one.rules()
        only_denials = EVERYTHING._replace(permission=DENY)
        assert await one.acls.delete([only_denials]) == [[denied]]
        assert allows(one.authorizer, "alice", READ, TOPIC, "orders")
        assert await store.get(acl_key(denied)) is None


async def test_records_with_one_stand_in_are_counted() -> None:
    stored = StoredAcls()
    twice = ["acls/topic/literal/a b/User:x/*/all/deny", "acls/topic/literal/a c/User:x/*/all/deny"]
    for key in twice:
        stored.apply(KeyValue(key=key, value=STORED_ACL, mod_revision=1))
    assert stored.stand_ins.rule_count == 1
    stored.apply(Delete(twice[0]))
    assert stored.stand_ins.rule_count == 1
    stored.apply(Delete(twice[1]))
    assert stored.stand_ins.rule_count == 0
    assert stored.unreadable_count == 0


# --- filters (Kafka's AclBindingTest and ResourcePatternFilterTest)

ORDERS_PREFIX = orders(name="ord", pattern_type=PREFIXED)
EVERY_TOPIC = orders(name="*")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, {orders(), ORDERS_PREFIX, EVERY_TOPIC}),
        ({"name": "orders"}, {orders()}),
        ({"name": "*"}, {EVERY_TOPIC}),
        ({"pattern_type": LITERAL}, {orders(), EVERY_TOPIC}),
        ({"pattern_type": PREFIXED}, {ORDERS_PREFIX}),
        ({"pattern_type": PREFIXED, "name": "orders"}, set()),
        ({"pattern_type": PatternType.MATCH, "name": "orders"}, {orders(), ORDERS_PREFIX, EVERY_TOPIC}),
        ({"pattern_type": PatternType.MATCH, "name": "ordered"}, {ORDERS_PREFIX, EVERY_TOPIC}),
        ({"pattern_type": PatternType.MATCH, "name": "x"}, {EVERY_TOPIC}),
        ({"resource_type": GROUP}, set()),
        ({"resource_type": TOPIC}, {orders(), ORDERS_PREFIX, EVERY_TOPIC}),
        ({"principal": "User:bob"}, set()),
        ({"host": "10.0.0.1"}, set()),
        ({"operation": WRITE}, set()),
        ({"permission": DENY}, set()),
    ],
)
def test_filter_finds_what_kafka_finds(wanted: dict[str, Any], found: set[AclBinding]) -> None:
    a_filter = EVERYTHING._replace(**wanted)
    assert {one for one in (orders(), ORDERS_PREFIX, EVERY_TOPIC) if a_filter.matches(one)} == found


texts = st.sampled_from(["a", "ab", "a/b", "*", "é"])
stored_rules = st.builds(
    AclBinding,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from([LITERAL, PREFIXED]),
    texts,
    texts.map("User:{}".format),
    st.sampled_from(["*", "::1"]),
    st.sampled_from([READ, ALL]),
    st.sampled_from([ALLOW, DENY]),
)
filters = st.builds(
    AclFilter,
    st.sampled_from([TOPIC, GROUP, ResourceType.ANY]),
    st.sampled_from([LITERAL, PREFIXED, PatternType.ANY, PatternType.MATCH]),
    st.none() | texts,
    st.none() | texts.map("User:{}".format),
    st.none() | st.sampled_from(["*", "::1"]),
    st.sampled_from([READ, ALL, Operation.ANY]),
    st.sampled_from([ALLOW, DENY, Permission.ANY]),
)


@given(stored_rules, filters)
def test_key_prefix_of_a_filter_leaves_no_rule_out(one: AclBinding, wanted: AclFilter) -> None:
    key = acl_key(one)
    assert decode_acl(key, STORED_ACL) == one
    if wanted.matches(one):
        assert key.startswith(wanted.key_prefix())

"""The embedded stores' decisions: staging, commit, rollback, and leases on a clock that the test holds."""

import pytest

from kafscale.errors import LeaseEndedError
from kafscale.metadata.keyspace import Keyspace
from kafscale.metadata.store import ABSENT, Changes, Compare, Delete, KeyValue, Put
from kafscale.metadata.store_state import StoreState


def state_with(**values: bytes) -> StoreState:
    state = StoreState(Keyspace())
    for key, value in values.items():
        state.transact([], [Put(key, value)])
    state.commit()
    return state


def test_staged_changes_are_seen_by_decisions_and_not_by_readers() -> None:
    state = state_with(a=b"1")
    assert state.transact([Compare("a", 1)], [Put("a", b"2")]).revision == 2
    assert not state.transact([Compare("a", 1)], [Put("a", b"3")]).succeeded
    assert state.transact([Compare("a", 2)], [Put("a", b"4")]).revision == 3
    assert state.keyspace.get("a") == KeyValue(key="a", value=b"1", mod_revision=1)
    assert state.keyspace.revision == 1


def test_a_commit_applies_every_transaction_in_order() -> None:
    state = state_with(a=b"1")
    state.transact([], [Put("b", b"2"), Delete("a")])
    state.transact([], [Put("b", b"3")])
    latest = KeyValue(key="b", value=b"3", mod_revision=3)
    assert state.staged_keys() == {"a": None, "b": latest}
    assert state.commit() == (
        Changes(puts_and_deletes=(KeyValue(key="b", value=b"2", mod_revision=2), Delete("a")), revision=2),
        Changes(puts_and_deletes=(latest,), revision=3),
    )
    assert list(state.keyspace) == [latest]
    assert state.revision == 3
    assert state.staged == ()
    assert state.staged_keys() == {}


def test_a_rollback_forgets_what_was_staged() -> None:
    state = state_with(a=b"1")
    lease = state.grant_lease(10, 0)
    state.transact([], [Put("b", b"2", lease), Delete("a")])
    state.revoke_lease(lease)
    state.rollback()
    assert list(state.keyspace) == [KeyValue(key="a", value=b"1", mod_revision=1)]
    assert state.revision == 1
    assert state.renew_lease(lease, 1)
    assert state.transact([Compare("b", ABSENT)], [Put("b", b"2", lease)]).revision == 2


def test_what_changes_nothing_makes_no_revision() -> None:
    state = state_with(a=b"1")
    assert state.transact([Compare("a", 1)], []).revision == 1
    assert state.transact([], [Delete("none")]).revision == 1
    state.transact([], [Delete("a")])
    assert state.transact([], [Delete("a")]).revision == 2
    assert len(state.staged) == 1


def test_a_lease_ends_when_it_is_due() -> None:
    state = state_with()
    lease = state.grant_lease(10, 100.0)
    state.transact([], [Put("a", b"1", lease), Put("b", b"2", lease), Put("c", b"3")])
    state.commit()
    assert state.next_expiry_sec() == 110.0
    state.expire_leases(109.9)
    assert state.staged == ()
    state.expire_leases(110.0)
    assert state.commit() == (Changes(puts_and_deletes=(Delete("a"), Delete("b")), revision=2),)
    assert state.next_expiry_sec() is None
    assert not state.renew_lease(lease, 110.0)


def test_a_renewal_counts_from_its_own_time() -> None:
    state = state_with()
    lease = state.grant_lease(10, 0)
    assert state.renew_lease(lease, 9.0)
    state.expire_leases(18.9)
    assert state.renew_lease(lease, 18.9)
    assert state.next_expiry_sec() == 28.9


def test_due_lease_can_be_renewed_until_its_end_is_staged() -> None:
    state = state_with()
    lease = state.grant_lease(10, 0)
    assert state.renew_lease(lease, 50.0)
    state.expire_leases(60.0)
    assert not state.renew_lease(lease, 60.0)
    with pytest.raises(LeaseEndedError):
        state.transact([], [Put("a", b"1", lease)])


def test_every_lease_can_be_renewed_after_an_outage() -> None:
    state = state_with()
    leases = [state.grant_lease(ttl_sec, 0) for ttl_sec in (1, 10)]
    state.renew_every_lease(100.0)
    state.expire_leases(100.9)
    assert state.next_expiry_sec() == 101.0
    assert all(state.renew_lease(lease, 100.9) for lease in leases)


def test_a_revoke_takes_staged_keys_and_leaves_unbound_ones() -> None:
    state = state_with()
    lease = state.grant_lease(10, 0)
    state.transact([], [Put("bound", b"1", lease), Put("freed", b"1", lease), Put("gone", b"1", lease)])
    state.commit()
    state.transact([], [Put("staged", b"2", lease), Put("freed", b"2"), Delete("gone")])
    state.revoke_lease(lease)
    state.commit()
    assert [item.key for item in state.keyspace] == ["freed"]


def test_a_lease_without_keys_ends_without_a_revision() -> None:
    state = state_with()
    lease = state.grant_lease(1, 0)
    state.expire_leases(1)
    assert state.staged == ()
    state.commit()
    assert not state.renew_lease(lease, 1)

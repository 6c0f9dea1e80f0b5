"""Records below a prefix in the view: quotas and users as examples."""

from kafscale.cluster.view import ClusterView
from kafscale.formats.quota_record import QuotaEntity, encode_quotas, quota_key
from kafscale.formats.user_record import UserRecord, encode_user_record
from kafscale.metadata import keys
from kafscale.metadata.store import ABSENT, Changes, Delete, KeyValue, Snapshot

ALICE, BOB = QuotaEntity(user="alice"), QuotaEntity(user="bob")
ALICES, BOBS = quota_key(ALICE), quota_key(BOB)


def item(key: str, rate: float, revision: int = 1) -> KeyValue:
    return KeyValue(key=key, value=encode_quotas({"producer_byte_rate": rate}), mod_revision=revision)


def changes(*changed: KeyValue | Delete, revision: int = 2) -> Changes:
    return Changes(puts_and_deletes=changed, revision=revision)


def test_records_are_those_of_the_last_snapshot_and_changes() -> None:
    view = ClusterView("cluster")
    heard: list[str] = []
    view.quotas.subscribe(heard.append)
    view.apply(keys.QUOTAS, Snapshot(items=(item(ALICES, 1), item(BOBS, 2)), revision=1))
    assert view.quotas.get(ALICES) == (ALICE, {"producer_byte_rate": 1.0})
    assert view.quotas.revision(ALICES) == 1
    view.apply(keys.QUOTAS, changes(item(ALICES, 3, revision=2)))
    assert view.quotas.get(ALICES) == (ALICE, {"producer_byte_rate": 3.0})
    view.apply(keys.QUOTAS, Snapshot(items=(item(ALICES, 3, revision=2),), revision=3))
    assert (view.quotas.get(BOBS), view.quotas.revision(BOBS)) == (None, ABSENT)
    view.apply(keys.QUOTAS, changes(Delete(ALICES), revision=4))
    assert len(view.quotas) == 0
    assert heard == [ALICES, BOBS, ALICES, BOBS, ALICES]


def test_record_that_cannot_be_read_hurts_only_itself() -> None:
    view = ClusterView("cluster")
    bad = KeyValue(key=BOBS, value=b"?", mod_revision=1)
    stray = item("quotas/of=nothing", 1)
    view.apply(keys.QUOTAS, Snapshot(items=(item(ALICES, 1), bad, stray), revision=1))
    assert list(view.quotas.items()) == [ALICES]
    assert view.unreadable.count(keys.QUOTAS) == 2
    view.apply(keys.QUOTAS, changes(KeyValue(key=ALICES, value=b"?", mod_revision=2)))
    assert view.quotas.get(ALICES) == (ALICE, {"producer_byte_rate": 1.0})
    assert view.quotas.revision(ALICES) == 1
    view.apply(keys.QUOTAS, changes(item(ALICES, 5, revision=3), Delete(BOBS), Delete(stray.key), revision=3))
    assert view.unreadable.count(keys.QUOTAS) == 0


def test_user_whose_record_cannot_be_read_is_unknown() -> None:
    view = ClusterView("cluster")
    record = UserRecord("alice", {})
    stored = KeyValue(key=keys.user("alice"), value=encode_user_record(record), mod_revision=1)
    bob = KeyValue(key=keys.user("bob"), value=encode_user_record(UserRecord("bob", {})), mod_revision=1)
    view.apply(keys.USERS, Snapshot(items=(stored, bob), revision=1))
    assert view.users.get(keys.user("alice")) == record

    damaged = KeyValue(key=stored.key, value=b"?", mod_revision=2)
    view.apply(keys.USERS, Changes(puts_and_deletes=(damaged,), revision=2))
    assert view.users.get(keys.user("alice")) is None
    assert view.users.get(keys.user("bob")) is not None
    assert view.unreadable.count(keys.USERS) == 1

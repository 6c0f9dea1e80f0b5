"""The marker names the bucket of the journals: whoever does not know it starts nothing and rebuilds nothing."""

import pytest

from kafscale.cluster.identity import establish_cluster
from kafscale.cluster.journal_place import (
    NO_JOURNAL_BUCKET,
    JournalPlace,
    check_journal_place,
    settle_journal_place,
)
from kafscale.cluster.marker import Marker, find_marker, name_journal_bucket
from kafscale.errors import CorruptDataError, StartupError
from kafscale.formats.journal_keys import entry_key, journal_probe_key
from kafscale.formats.object_keys import cluster_marker_key
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Delete, Put
from kafscale.objects.journal_bucket import JournalBucketStore
from tests.support.controlled_store import ControlledStore

NAMESPACE = "records"
WRITE = JournalPlace("s3://journals", begins_there=True)
READ = JournalPlace("journals", begins_there=False)
OTHER = JournalPlace("others", begins_there=True)
ENTRY = entry_key(NAMESPACE, "x-3f2a", 0)


class Stores:
    """The stores of a cluster with two buckets."""

    def __init__(self) -> None:
        self.metadata, self.records, self.journals = MemoryStore(), ControlledStore(), ControlledStore()
        self.objects = JournalBucketStore(self.records, self.journals, NAMESPACE)

    async def start(self, place: JournalPlace) -> None:
        """As a broker does."""
        await establish_cluster(self.metadata, self.objects, NAMESPACE)
        await settle_journal_place(self.metadata, self.objects, NAMESPACE, place)

    async def marked(self) -> str | None:
        marker = await find_marker(self.records, NAMESPACE)
        assert marker is not None
        return marker.journal_bucket


async def test_first_start_names_the_journal_bucket() -> None:
    stores = Stores()
    await stores.start(NO_JOURNAL_BUCKET)
    assert await stores.marked() is None
    await stores.start(READ)
    assert await stores.marked() is None
    await stores.start(WRITE)
    assert await stores.marked() == "journals"
    await stores.start(WRITE)
    marker = await find_marker(stores.records, NAMESPACE)
    assert marker == Marker(await establish_cluster(stores.metadata, stores.objects, NAMESPACE), "journals")


@pytest.mark.parametrize(
    ("place", "said"), [(NO_JOURNAL_BUCKET, "is not set"), (OTHER, "is others: .* set it to journals")]
)
async def test_start_without_the_right_bucket_is_refused(place: JournalPlace, said: str) -> None:
    stores = Stores()
    await stores.start(WRITE)
    with pytest.raises(StartupError, match=f"lie in the bucket journals, and KAFSCALE_JOURNAL_BUCKET {said}"):
        await stores.start(place)
    with pytest.raises(StartupError, match="lie in the bucket journals"):
        await check_journal_place(stores.records, NAMESPACE, place)
    assert await stores.marked() == "journals"


async def test_namespace_without_a_marker_passes() -> None:
    await check_journal_place(ControlledStore(), NAMESPACE, NO_JOURNAL_BUCKET)


async def test_bucket_is_left_once_no_journal_is_there() -> None:
    stores = Stores()
    await stores.start(WRITE)
    await stores.metadata.transact([], [Put(keys.journal("x-3f2a"), b"record")])
    await stores.journals.put_if_absent(ENTRY, [b"entry"])
    await stores.start(READ)
    assert await stores.marked() == "journals"
    await stores.metadata.transact([], [Delete(keys.journal("x-3f2a"))])
    await stores.start(READ)
    assert await stores.marked() == "journals"
    await stores.journals.delete([ENTRY])
    await stores.journals.put_if_absent(journal_probe_key(NAMESPACE, "abc", 0), [b"left by a probe"])
    await stores.start(READ)
    assert await stores.marked() is None
    await stores.start(NO_JOURNAL_BUCKET)


async def test_unreadable_name_is_an_error() -> None:
    records = ControlledStore()
    key = cluster_marker_key(NAMESPACE)
    await records.put(key, [b'{"version":2,"cluster_id":"abc","journal_bucket":7}'])
    with pytest.raises(CorruptDataError, match="'journal_bucket' is 7, not text"):
        await check_journal_place(records, NAMESPACE, NO_JOURNAL_BUCKET)


async def test_unclaimed_namespace_is_not_marked() -> None:
    records = ControlledStore()
    await name_journal_bucket(records, NAMESPACE, "journals")
    assert await records.keys() == []

"""The cluster id: made once, in Kafka's form."""

import asyncio
import re
import uuid
from base64 import urlsafe_b64decode

import pytest

from kafscale.cluster.cluster_record import (
    adopt_cluster_id,
    ensure_cluster_id,
    kafka_uuid_text,
    new_kafka_uuid,
)
from kafscale.errors import CorruptDataError
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from tests.support.faults import ERRORS, Fault, Fuse, FusedMetadataStore


async def test_it_is_made_once_and_kept() -> None:
    store = MemoryStore()
    ids = await asyncio.gather(*(ensure_cluster_id(store) for _ in range(5)))
    assert len(set(ids)) == 1
    assert await ensure_cluster_id(store) == ids[0]
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", ids[0])


@pytest.mark.parametrize("fault", [fault for fault in ERRORS if fault is not Fault.UNAVAILABLE])
async def test_an_unknown_outcome_leaves_one_id(fault: Fault) -> None:
    store = MemoryStore()
    write = 2
    made = await ensure_cluster_id(FusedMetadataStore(store, Fuse(write, fault)), retry_delay_sec=0.001)
    assert await ensure_cluster_id(store) == made


def test_ids_read_as_kafka_writes_them_and_never_like_an_option() -> None:
    offered = [uuid.UUID(bytes=b"\xfb" + bytes(15)), uuid.UUID(bytes=b"\x01" * 16)]
    assert kafka_uuid_text(offered[0]).startswith("-")
    remaining = iter(offered)
    value = new_kafka_uuid(lambda: next(remaining))
    assert value == offered[1]
    assert urlsafe_b64decode(kafka_uuid_text(value) + "==") == value.bytes


async def test_a_record_that_cannot_be_read_is_refused() -> None:
    store = MemoryStore()
    await store.transact([], [Put(keys.CLUSTER, b'{"version":1}')])
    with pytest.raises(CorruptDataError, match="cluster"):
        await ensure_cluster_id(store)


async def test_an_id_is_adopted_by_a_store_that_has_none() -> None:
    store = MemoryStore()
    assert await adopt_cluster_id(store, "first") == "first"
    assert await adopt_cluster_id(store, "second") == "first"
    assert await ensure_cluster_id(store) == "first"


@pytest.mark.parametrize("fault", [fault for fault in ERRORS if fault is not Fault.UNAVAILABLE])
async def test_an_adoption_of_unknown_outcome_is_read_back(fault: Fault) -> None:
    store = MemoryStore()
    write = 2
    fused = FusedMetadataStore(store, Fuse(write, fault))
    assert await adopt_cluster_id(fused, "first", retry_delay_sec=0.001) == "first"

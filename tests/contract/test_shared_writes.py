"""Writes that share a transaction, in every metadata store: each receives its outcome."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kafscale.metadata.shared_writes import SharedWrites
from kafscale.metadata.store import Compare, MetadataStore, Put, TransactionResult
from kafscale.metadata.write_batch import Write
from tests.contract.metadata_backends import BACKENDS

COUNT = 300
RECORD_BYTES = 16 * 1024


@pytest.fixture(params=sorted(BACKENDS))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    async with BACKENDS[request.param](tmp_path) as opened:
        yield opened


async def _write_all(
    store: MetadataStore, revisions: dict[str, int], value: bytes
) -> dict[str, TransactionResult]:
    shared = SharedWrites(store)
    results = await asyncio.gather(
        *(
            shared.write(Write((Compare(key, revision),), (Put(key, value),)))
            for key, revision in revisions.items()
        )
    )
    await shared.close()
    return dict(zip(revisions, results, strict=True))


async def _created(store: MetadataStore) -> dict[str, int]:
    revisions: dict[str, int] = {}
    for start in range(0, COUNT, 100):
        keys = [f"partitions/t/{number}" for number in range(start, start + 100)]
        result = await store.transact([], [Put(key, b"old") for key in keys])
        revisions |= dict.fromkeys(keys, result.revision)
    return revisions


async def test_many_large_records_at_once(store: MetadataStore) -> None:
    revisions = await _created(store)
    results = await _write_all(store, revisions, bytes(RECORD_BYTES))
    assert all(result.succeeded for result in results.values())
    held = {item.key: item for item in (await store.range("partitions/")).items}
    assert {key: item.mod_revision for key, item in held.items()} == {
        key: result.revision for key, result in results.items()
    }
    assert {item.value for item in held.values()} == {bytes(RECORD_BYTES)}
    # Far fewer transactions than writes: those of one have its revision in common.
    assert len({result.revision for result in results.values()}) < COUNT / 10


async def test_conflicting_writes_fail_and_others_succeed(
    store: MetadataStore,
) -> None:
    revisions = await _created(store)
    overtaken = [f"partitions/t/{number}" for number in range(5, COUNT, 50)]
    await store.transact([], [Put(key, b"another's") for key in overtaken])
    results = await _write_all(store, revisions, b"new")
    assert {key for key, result in results.items() if not result.succeeded} == set(overtaken)
    for key in overtaken:
        (found,) = results[key].found
        assert found is not None
        assert found == await store.get(key)
        assert found.value == b"another's"
    held = {item.key: item.value for item in (await store.range("partitions/")).items}
    assert all(held[key] == b"new" for key in revisions.keys() - set(overtaken))

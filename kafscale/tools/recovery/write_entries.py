"""Puts what a snapshot brings beside the topics into the metadata store: only under absent keys, and repeatably."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kafscale.metadata.store import ABSENT, Compare, KeyValue, MetadataReader, MetadataStore, Put
from kafscale.tools.recovery.rebuild import patiently
from kafscale.tools.recovery.restored import ENTRY_PREFIXES, is_same_entry

TRANSACTION_BYTES: Final = 512 * 1024
"""The most that one transaction carries: etcd takes 1.5 MiB."""


async def problem_of_entries(metadata: MetadataReader, entries: Mapping[str, bytes]) -> list[str]:
    """Why they may not be written: keys that are there and hold something else. Raises `StoreError`."""
    others = [
        item.key
        for item in await _held(metadata)
        if item.key not in entries or not is_same_entry(item.key, item.value, entries[item.key])
    ]
    if not others:
        return []
    return [
        f"the metadata store holds {len(others)} keys of groups, exports, quotas, users, access rules or deleted "
        f"topics that the snapshot does not, or has otherwise ({others[0]!r} for one): a snapshot goes into an empty "
        "metadata store only"
    ]


async def put_entries(metadata: MetadataStore, entries: Mapping[str, bytes]) -> bool:
    """Put those that are missing; False when one of them came to be there meanwhile. Raises `StoreError`."""
    present = {item.key for item in await _held(metadata)}
    missing = [Put(key, value) for key, value in sorted(entries.items()) if key not in present]
    for chunk in put_chunks(missing, metadata.max_operations):
        result = await metadata.transact([Compare(put.key, ABSENT) for put in chunk], chunk)
        if not result.succeeded:
            return False
    return True


async def _held(metadata: MetadataReader) -> list[KeyValue]:
    found: list[KeyValue] = []
    for prefix in ENTRY_PREFIXES:
        found += await _under(metadata, prefix)
    return found


async def _under(metadata: MetadataReader, prefix: str) -> tuple[KeyValue, ...]:
    return (await patiently(lambda: metadata.range(prefix))).items


def put_chunks(puts: Sequence[Put], most: int) -> Iterator[list[Put]]:
    """The puts in transactions of at most `most` and `TRANSACTION_BYTES`; at least one, which may be empty."""
    chunk: list[Put] = []
    size_bytes = 0
    for put in puts:
        if chunk and (len(chunk) == most or size_bytes + len(put.value) > TRANSACTION_BYTES):
            yield chunk
            chunk, size_bytes = [], 0
        chunk.append(put)
        size_bytes += len(put.value)
    yield chunk

"""Puts the markers of open transactions into the metadata store: only where none of this topic is, and repeatably."""

import uuid
from collections.abc import Mapping

from kafscale.formats.marker_record import decode_marker_record
from kafscale.metadata import keys
from kafscale.metadata.store import ABSENT, Compare, KeyValue, MetadataStore, Put
from kafscale.tools.recovery.rebuild import patiently
from kafscale.tools.recovery.write_entries import put_chunks


async def put_markers(
    metadata: MetadataStore, topic: str, topic_id: uuid.UUID, markers: Mapping[str, bytes]
) -> None:
    """Put the topic's markers, by key. Raises `StoreError`, `CorruptDataError`.

    One that means this topic stays: it is an earlier run's. One that means an earlier topic of the name, whose record
    was lost alone, is replaced: its leader would only delete it.
    """
    prefix = keys.topic_partition_markers(topic)
    while True:
        held = {item.key: item for item in (await patiently(lambda: metadata.range(prefix))).items}
        wanted = [
            Put(key, value)
            for key, value in sorted(markers.items())
            if key not in held or not _means(held[key], topic_id)
        ]
        if not wanted:
            return
        for chunk in put_chunks(wanted, metadata.max_operations):
            compares = [
                Compare(put.key, held[put.key].mod_revision if put.key in held else ABSENT) for put in chunk
            ]
            await patiently(
                lambda compares=compares, chunk=chunk: metadata.transact(compares, chunk)  # type: ignore[misc]
            )


def _means(item: KeyValue, topic_id: uuid.UUID) -> bool:
    return decode_marker_record(item.key, item.value).topic_id == topic_id

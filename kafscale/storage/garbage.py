"""Which objects of a partition nothing can ever refer to. Pure; the driver is garbage_collector.py."""

from collections.abc import Iterable

from kafscale.metadata.partition_record import SegmentReference
from kafscale.storage.object_keys import parse_index_key, parse_segment_key
from kafscale.storage.object_store import ObjectInfo


def candidates(listed: Iterable[ObjectInfo], log_end_offset: int, before_ms: int) -> list[tuple[str, int]]:
    """Keys and base offsets of segments and indexes that are garbage unless they are referred to.

    A segment is published under the log end offset or a little above it. So what lies strictly below the
    published one can only be referred to already; whoever still tries to publish it is fenced. Objects changed
    since `before_ms` are left for readers that know an older record. Merged segments are left alone.
    """
    found = []
    for info in listed:
        key = parse_segment_key(info.key) or parse_index_key(info.key)
        if key is None or key.last_offset is not None:
            continue
        if key.base_offset < log_end_offset and info.modified_ms < before_ms:
            found.append((info.key, key.base_offset))
    return found


def garbage(found: Iterable[tuple[str, int]], references: Iterable[SegmentReference]) -> list[str]:
    """Those of the candidates that no reference is about, under whatever key its object lies."""
    referred = {reference.base_offset for reference in references}
    return [key for key, base_offset in found if base_offset not in referred]

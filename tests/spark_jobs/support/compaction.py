"""Compacts the partitions of a `TopicWriter`'s topic as a leader does, with its cleaner, without a broker."""

import itertools
import time
from dataclasses import replace

from kafscale.formats import object_keys
from kafscale.formats.index import LEGACY_VERSION
from kafscale.formats.object_keys import Compaction
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE, parse_header
from kafscale.log.compaction.cleaner import CleaningRules
from kafscale.log.compaction.compacted_segment import CompactedSegment
from kafscale.log.compaction.worker import new_cleaner
from tests.spark_jobs.support.stored_topic import StoredTopic
from tests.spark_jobs.support.topic_writer import TopicWriter

COMPACTED = {"cleanup.policy": "compact"}

_MEMORY_BYTES = 1 << 20
_tokens = itertools.count(1)


def compact(writer: TopicWriter, partition: int, *, delete_retention_ms: int = 86_400_000) -> None:
    """Compact all segments but the newest into one, and delete them."""

    async def compacted(topic: StoredTopic) -> None:
        record = await topic.record(partition)
        *sources, newest = await topic.references(partition)
        keys = topic.keys_of(partition, sources)
        objects = [await topic.objects.get(key) for key in keys]
        batches = [memoryview(data)[HEADER_SIZE:-FOOTER_SIZE] for data in objects]
        rules = CleaningRules(
            now_ms=time.time_ns() // 1_000_000,
            delete_retention_ms=delete_retention_ms,
            first_dirty_offset=0,
            last_batches={},
            opened_limit_bytes=_MEMORY_BYTES,
        )
        cleaner = new_cleaner(rules, _MEMORY_BYTES, 10_000)
        for one in batches:
            cleaner.map_batches(one)
        assert not cleaner.is_full
        body = b"".join([cleaner.clean(one) for one in batches] + [cleaner.end_object()[0]])
        made = CompactedSegment(sources, parse_header(keys[-1], bytes(objects[-1][:HEADER_SIZE])))
        made.add(body)
        key = object_keys.compacted_segment_key(
            topic.namespace,
            topic.topic,
            partition,
            sources[0].base_offset,
            sources[-1].last_offset,
            Compaction(cleaner.map_end_offset, record.leader_epoch, f"t{next(_tokens)}"),
        )
        await topic.objects.put_if_absent(key, [made.header, body, made.footer])
        index = made.index(LEGACY_VERSION)
        await topic.objects.put_if_absent(object_keys.index_key_of(key), [index])
        references = (made.reference(key), newest)
        await topic.publish(
            partition,
            record,
            replace(record, segments=references, checkpoint_key="", checkpoint_end_offset=0),
        )
        await topic.objects.delete([*keys, *map(object_keys.index_key_of, keys)])

    writer.run(compacted)


def set_compacted(writer: TopicWriter) -> None:
    """Give the topic the policy `compact`."""
    writer.run(lambda topic: topic.set_configs(COMPACTED))


def kept_offsets(writer: TopicWriter, partition: int) -> set[int]:
    """The offsets whose records the newest segment of the partition, or its compaction, leaves to be read.

    By the rule, not by the cleaner: the newest of each key before the newest segment, and all of that.
    """

    async def last_base(topic: StoredTopic) -> int:
        return (await topic.references(partition))[-1].base_offset

    base = writer.run(last_base)
    records = writer.stored(partition)
    newest = {one.key: one.offset for one in records if one.offset < base}
    return {one.offset for one in records if one.offset >= base or newest[one.key] == one.offset}

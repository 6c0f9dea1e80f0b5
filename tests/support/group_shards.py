"""Another number of group shards than brokers have, for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from kafscale.groups.share import stored_size
from kafscale.metadata import keys


@contextmanager
def with_group_shards(count: int) -> Iterator[None]:
    """For brokers that start and end in the block. What was derived from the other number is forgotten."""
    with mock.patch.object(keys, "GROUP_SHARD_COUNT", count):
        stored_size.prefix_bytes.cache_clear()
        try:
            yield
        finally:
            stored_size.prefix_bytes.cache_clear()

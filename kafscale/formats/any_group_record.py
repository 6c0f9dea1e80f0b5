"""The record of a group of any type: the version says which."""

from kafscale.formats.consumer_group_record import (
    ConsumerGroupRecord,
    decode_consumer_group,
    is_consumer_group,
)
from kafscale.formats.group_record import GroupRecord, decode_group_record
from kafscale.formats.share_group_record import ShareGroupRecord, decode_share_group, is_share_group

AnyGroupRecord = GroupRecord | ConsumerGroupRecord | ShareGroupRecord


def decode_any_group(name: str, data: bytes) -> AnyGroupRecord:
    """The record. `name` says which in errors. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    if is_consumer_group(data):
        return decode_consumer_group(name, data)
    if is_share_group(data):
        return decode_share_group(name, data)
    return decode_group_record(name, data)

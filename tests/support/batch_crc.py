"""The CRC of a stored batch, checked without the code under test."""

from crc32c import crc32c

from kafscale.protocol.record_batch import ATTRIBUTES_POSITION, read_header
from kafscale.protocol.types import Buffer


def assert_crc(buffer: Buffer, position: int) -> None:
    """The batch at `position` has the CRC that its header says."""
    header = read_header(buffer, position)
    covered = memoryview(buffer)[position + ATTRIBUTES_POSITION : position + header.size_bytes]
    assert crc32c(covered) == header.crc

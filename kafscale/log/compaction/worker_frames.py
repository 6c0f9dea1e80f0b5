"""The frames between a broker and its compaction process: a kind, a length and a payload. Pure."""

from enum import IntEnum
from struct import Struct
from typing import BinaryIO, Final

from kafscale.protocol.types import Buffer

_HEADER: Final = Struct(">BI")


class Frame(IntEnum):
    """The kinds. The broker asks, the process answers each request with one frame.

    `BEGIN`: JSON of a compaction's rules, answered with `DONE`. `MAP`: dirty batches, answered with `DONE` and JSON
    of how far the map reaches. `CLEAN`: batches, answered with `DONE` and those that stay. `END`: answered with
    `DONE` and JSON of the last bytes of the object and what was counted. `AGAIN`: the batches of the object that
    was ended last come once more, answered with `DONE`. `FAILED`: a text, in place of any answer.
    """

    BEGIN = 1
    MAP = 2
    CLEAN = 3
    END = 4
    DONE = 5
    FAILED = 6
    AGAIN = 7


def write_frame(stream: BinaryIO, kind: Frame, *parts: Buffer) -> None:
    """Write one frame with the joined parts, and flush."""
    stream.write(_HEADER.pack(kind, sum(len(part) for part in parts)))
    for part in parts:
        stream.write(part)
    stream.flush()


def read_frame(stream: BinaryIO) -> tuple[Frame, bytes] | None:
    """The next frame; None at the end of the stream. Raises `EOFError` in the middle of one."""
    header = stream.read(_HEADER.size)
    if not header:
        return None
    if len(header) < _HEADER.size:
        raise EOFError("the stream ends in the header of a frame")
    kind, length = _HEADER.unpack(header)
    payload = stream.read(length)
    if len(payload) < length:
        raise EOFError(f"the stream ends after {len(payload)} of a frame's {length} bytes")
    return Frame(kind), payload

"""Shows what a checkpoint holds. Its one CRC covers everything, so a damaged one is not looked into. Pure."""

from collections.abc import Iterator

from kafscale.errors import CorruptDataError
from kafscale.formats.checkpoint import decode_checkpoint
from kafscale.tools.dump.findings import Finding, FoundCheckpoint, Problem
from kafscale.tools.dump.piece_reader import PieceReader

MAX_CHECKPOINT_BYTES = 256 * 2**20
"""A checkpoint has less than 100 bytes for each segment; one that is larger is not read into memory."""


def checkpoint_findings(reader: PieceReader) -> Iterator[Finding]:
    """The checkpoint, or what is wrong with it. Raises what the source's `read` raises."""
    size = reader.size_bytes
    if size > MAX_CHECKPOINT_BYTES:
        yield Problem(
            text=f"its {size} bytes are more than the {MAX_CHECKPOINT_BYTES} that a checkpoint may have"
        )
        return
    try:
        checkpoint = decode_checkpoint(reader.name, bytes(reader.view(0, size)))
    except CorruptDataError as problem:
        yield Problem(text=problem.problem)
    else:
        yield FoundCheckpoint(checkpoint=checkpoint, size_bytes=size)

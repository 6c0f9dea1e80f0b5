"""Puts in transactions that the metadata store takes. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from kafscale.metadata.store import Put

TRANSACTION_BYTES: Final = 512 * 1024
"""The most that one transaction carries: etcd takes 1.5 MiB."""


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

"""The newest offset of each key among the records that a compaction looks at, in memory of a fixed size. Pure.

As Kafka's SkimpyOffsetMap: the map has digests of the keys in place of keys, in open addressing, 24 bytes for each
slot. The digests are of 128 bits and keyed with a secret of the run, so that no client can make two keys that share
one.
"""

from array import array
from hashlib import blake2b
from typing import Final

SLOT_BYTES: Final = 24
_DIGEST_BYTES: Final = 16
_SECRET_BYTES: Final = 16
_FREE: Final = bytes(_DIGEST_BYTES)
# Of the slots: in a fuller table every look takes long.
_MOST_USED: Final = 0.9
_LEAST_SLOTS: Final = 16
NO_OFFSET: Final = -1


class OffsetMap:
    """`latest_offset`: that of the newest record that was looked at, `NO_OFFSET` before the first."""

    def __init__(self, memory_bytes: int, most_keys: int, secret: bytes) -> None:
        """`most_keys`: no more will be put, as far as the caller knows: a small map is enough for few.

        `secret`: at most 16 bytes.
        """
        self._slots = max(_LEAST_SLOTS, min(memory_bytes // SLOT_BYTES, int(most_keys / _MOST_USED) + 1))
        self._most_used = int(self._slots * _MOST_USED)
        self._digests = bytearray(self._slots * _DIGEST_BYTES)
        self._offsets = array("q", bytes(8 * self._slots))
        self._hasher = blake2b(digest_size=_DIGEST_BYTES, key=secret[:_SECRET_BYTES])
        self.latest_offset = NO_OFFSET
        self.key_count = 0

    def room(self) -> int:
        """How many more keys it takes."""
        return self._most_used - self.key_count

    def put(self, key: bytes, offset: int) -> None:
        """The record at `offset` has the key; offsets ascend. Raises `OverflowError` in a full map."""
        digest, slot = self._find(key)
        if not digest:
            self._offsets[slot] = offset
        else:
            if self.key_count >= self._most_used:
                raise OverflowError(f"the map has {self.key_count} keys and no room for another one")
            position = slot * _DIGEST_BYTES
            self._digests[position : position + _DIGEST_BYTES] = digest
            self._offsets[slot] = offset
            self.key_count += 1
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """The newest offset of the key, `NO_OFFSET` if it was not put."""
        digest, slot = self._find(key)
        return NO_OFFSET if digest else self._offsets[slot]

    def _find(self, key: bytes) -> tuple[bytes, int]:
        """The slot of a key that is there, with an empty digest; else a free slot and the digest to put there."""
        hasher = self._hasher.copy()
        hasher.update(key)
        digest = hasher.digest()
        digests, slots = self._digests, self._slots
        slot = int.from_bytes(digest[:8], "little") % slots
        while True:
            position = slot * _DIGEST_BYTES
            found = digests[position : position + _DIGEST_BYTES]
            if found == digest:
                return b"", slot
            if found == _FREE:
                return digest, slot
            slot += 1
            if slot == slots:
                slot = 0

"""The debt of sealing: slices that partitions led have in entries and gathered objects, and since when. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kafscale.formats.partition_record import SegmentReference
from kafscale.journal.partition_state import unsealed

_FIRST_PRUNE = 64


class Led(Protocol):
    """A partition, as far as it matters here."""

    @property
    def is_led(self) -> bool:
        """True while this broker leads it."""


Owner = TypeVar("Owner", bound=Led)


@dataclass(slots=True)
class _Unsealed:
    slices: int
    size_bytes: int
    first_offset: int
    since_sec: float


class SealDebt(Generic[Owner]):
    """By partition. Times are seconds of one clock that only goes forward. Any thread may read the totals."""

    def __init__(self) -> None:
        self._unsealed: dict[Owner, _Unsealed] = {}
        self._prune_at = _FIRST_PRUNE

    def added(self, owner: Owner, reference: SegmentReference, now_sec: float) -> None:
        """A slice was published."""
        found = self._unsealed.get(owner)
        if found is None:
            self._prune()
            self._unsealed[owner] = _Unsealed(1, reference.size_bytes, reference.base_offset, now_sec)
        else:
            found.slices += 1
            found.size_bytes += reference.size_bytes

    def stored(self, owner: Owner, references: Sequence[SegmentReference], now_sec: float) -> None:
        """The partition's record was written, with these references. An oldest slice that is new waits since now."""
        slices = unsealed(references)
        before = self._unsealed.pop(owner, None)
        if slices:
            first_offset = slices[0].base_offset
            is_same = before is not None and before.first_offset == first_offset
            since_sec = before.since_sec if is_same and before is not None else now_sec
            size_bytes = sum(one.size_bytes for one in slices)
            self._unsealed[owner] = _Unsealed(len(slices), size_bytes, first_offset, since_sec)

    @property
    def slices(self) -> int:
        """How many slices are not sealed."""
        return sum(one.slices for one in self._led())

    @property
    def size_bytes(self) -> int:
        """The bytes of these."""
        return sum(one.size_bytes for one in self._led())

    def oldest_sec(self, now_sec: float) -> float:
        """How long the oldest of them has waited; 0 for none."""
        return max(0.0, now_sec - min((one.since_sec for one in self._led()), default=now_sec))

    def _led(self) -> list[_Unsealed]:
        return [one for owner, one in tuple(self._unsealed.items()) if owner.is_led]

    def _prune(self) -> None:
        """Forget partitions that are led elsewhere, each time that there are twice as many."""
        if len(self._unsealed) >= self._prune_at:
            for owner in [owner for owner in self._unsealed if not owner.is_led]:
                del self._unsealed[owner]
            self._prune_at = max(_FIRST_PRUNE, 2 * len(self._unsealed))

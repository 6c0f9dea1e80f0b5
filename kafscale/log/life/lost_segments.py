"""What it means that objects of a log are missing. Pure; the driver is lost_objects.py."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from kafscale.formats.partition_record import SegmentReference


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The segments whose objects are missing, ascending: from the log's start on, and behind one that is there."""

    at_start: tuple[SegmentReference, ...] = ()
    inside: tuple[SegmentReference, ...] = ()

    @property
    def droppable(self) -> tuple[SegmentReference, ...]:
        """What the log may go on without.

        Rules that expire objects take the oldest. When something is missing although older data is there,
        something else has happened: then nothing may go, for what was lost may be restored.
        """
        return () if self.inside else self.at_start

    def __bool__(self) -> bool:
        return bool(self.at_start or self.inside)


def loss_of(references: Sequence[SegmentReference], missing: Container[SegmentReference]) -> Loss:
    """Sort out what is missing of the whole log's references, which ascend."""
    count = 0
    while count < len(references) and references[count] in missing:
        count += 1
    return Loss(
        at_start=tuple(references[:count]),
        inside=tuple(reference for reference in references[count:] if reference in missing),
    )

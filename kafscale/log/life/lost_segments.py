"""The loss of objects of a log, and which segments may be dropped for it. Pure; driven by lost_objects.py."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from kafscale.formats.partition_record import SegmentReference


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The segments whose objects are missing, ascending: from the log's start on, and behind an existing one."""

    at_start: tuple[SegmentReference, ...] = ()
    inside: tuple[SegmentReference, ...] = ()

    @property
    def droppable(self) -> tuple[SegmentReference, ...]:
        """The segments that the log may drop.

        Lifecycle rules delete the oldest objects first. If an object is missing although older ones exist, the
        cause is another one: then no segment may be dropped, since the lost ones may be restored.
        """
        return () if self.inside else self.at_start

    def __bool__(self) -> bool:
        return bool(self.at_start or self.inside)


def loss_of(references: Sequence[SegmentReference], missing: Container[SegmentReference]) -> Loss:
    """The loss, from all references of the log, ascending, and those that are missing."""
    count = 0
    while count < len(references) and references[count] in missing:
        count += 1
    return Loss(
        at_start=tuple(references[:count]),
        inside=tuple(reference for reference in references[count:] if reference in missing),
    )

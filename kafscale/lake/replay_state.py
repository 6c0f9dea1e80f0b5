"""The last step of a replay: which dead letters a table has as rows, and may still have as dead letters. Pure.

It is a property of the table that the rows went to, written in the commit that brought them. Until those dead letters
are deleted, every run deletes them before it does anything else (decision 0086).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafscale.errors import KafscaleError
from kafscale.lake.ranges import Ranges, union

PREFIX: Final = "kafscale.replay."
VERSION: Final = 1


class ReplayStateError(KafscaleError):
    """The property of a table that tells of a replay cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayState:
    """`offsets`: of the dead letters that became rows, by partition; `dead_letter_table`: where they were.

    `commit_id`: of the export state that was committed with the rows.
    """

    commit_id: str
    dead_letter_table: str
    offsets: Mapping[int, Ranges] = field(default_factory=dict)


def property_of(topic: str) -> str:
    """The name of the table's property."""
    return f"{PREFIX}{topic}"


def ranges_of(places: Iterable[tuple[int, int]]) -> dict[int, Ranges]:
    """Partitions and offsets as ranges."""
    found: dict[int, list[tuple[int, int]]] = {}
    for partition, offset in places:
        found.setdefault(partition, []).append((offset, offset + 1))
    return {partition: union(ranges) for partition, ranges in sorted(found.items())}


def encode_replay(state: ReplayState) -> str:
    """The property's text."""
    return json.dumps(
        {
            "version": VERSION,
            "commit_id": state.commit_id,
            "dead_letter_table": state.dead_letter_table,
            "offsets": {str(partition): ranges for partition, ranges in state.offsets.items()},
        },
        separators=(",", ":"),
    )


def decode_replay(topic: str, text: str) -> ReplayState:
    """The state in a property. Raises `ReplayStateError`."""
    try:
        fields: Any = json.loads(text)
        if fields["version"] != VERSION:
            raise ReplayStateError(
                f"{property_of(topic)} has version {fields['version']}; this program knows {VERSION}: use the "
                "version of Kafscale that wrote it, or a newer one"
            )
        offsets = {
            int(partition): tuple((int(first), int(following)) for first, following in ranges)
            for partition, ranges in fields["offsets"].items()
        }
        return ReplayState(
            commit_id=str(fields["commit_id"]),
            dead_letter_table=str(fields["dead_letter_table"]),
            offsets=offsets,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ReplayStateError(
            f"{property_of(topic)} is not of a replay ({problem!s:.100}): {text[:200]!r}"
        ) from None

"""The export state in a table: which offsets of a topic it has. Committed together with the data. Pure.

Stored as JSON under `kafscale.export.<topic>` in the summary of the snapshot that brought the data, and as a table
property of the same name, which outlives the expiry of snapshots. Every snapshot that a table remembers repeats it,
so a long one is packed. Format: docs/format/export-state.md.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafscale.errors import KafscaleError
from kafscale.lake.packed_offsets import pack_offsets, unpack_offsets
from kafscale.lake.ranges import Ranges, difference, first_missing, union

VERSION: Final = 1
PACKED_VERSION: Final = 2
MOST_PLAIN_BYTES: Final = 1024
"""A longer text is packed; up to about 30 partitions people and SQL can read it."""
PREFIX: Final = "kafscale.export."
CUT_PROPERTY: Final = "kafscale.export-cut"
"""In the summary of a snapshot that is of a cut of several topics; no topic's state has this name."""
MAIN_BRANCH: Final = "main"
_BRANCH_MARK: Final = "@"
"""Between topic and branch; no topic's name has it."""


class ExportStateError(KafscaleError):
    """The export state of a table cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportState:
    """The offsets of a topic that a table has, by partition.

    `commit_id`: of the commit that wrote the state, empty for a table that has nothing of the topic. `starts`: the
    offsets at which the export of a partition began. `exported`: the offsets whose records, if they exist, are in the
    table. `gaps`: offsets that expired before they were exported, and that an operator agreed to do without.
    """

    topic: str
    topic_id: str = ""
    commit_id: str = ""
    starts: Mapping[int, int] = field(default_factory=dict)
    exported: Mapping[int, Ranges] = field(default_factory=dict)
    gaps: Mapping[int, Ranges] = field(default_factory=dict)

    def position(self, partition: int) -> int | None:
        """The next offset to export; None for a partition whose export has not begun."""
        start = self.starts.get(partition)
        return None if start is None else first_missing(self.done(partition), start)

    def done(self, partition: int) -> Ranges:
        """The offsets that must not be exported again: exported ones and gaps."""
        return union(self.exported.get(partition, ()), self.gaps.get(partition, ()))

    def after(
        self,
        *,
        commit_id: str,
        topic_id: str,
        starts: Mapping[int, int],
        exported: Mapping[int, Ranges],
        gaps: Mapping[int, Ranges],
    ) -> "ExportState":
        """The state after a commit of these. A known start stays as it is."""
        return ExportState(
            topic=self.topic,
            topic_id=topic_id,
            commit_id=commit_id,
            starts={**starts, **self.starts},
            exported=_with(self.exported, exported),
            gaps=_with(self.gaps, gaps),
        )


def _with(before: Mapping[int, Ranges], added: Mapping[int, Ranges]) -> dict[int, Ranges]:
    return {
        partition: union(before.get(partition, ()), added.get(partition, ()))
        for partition in sorted({*before, *added})
    }


def property_of(topic: str, branch: str = MAIN_BRANCH) -> str:
    """The name under which the state of a topic is stored; in a summary always that of the main branch."""
    return f"{PREFIX}{topic}" if branch == MAIN_BRANCH else f"{PREFIX}{topic}{_BRANCH_MARK}{branch}"


def topic_of_property(name: str) -> str | None:
    """The topic whose state is stored under this name, on any branch; None for other properties."""
    if not name.startswith(PREFIX):
        return None
    return name.removeprefix(PREFIX).partition(_BRANCH_MARK)[0]


def encode_state(state: ExportState) -> str:
    """The stored text."""
    whose = {"topic": state.topic, "topic_id": state.topic_id, "commit_id": state.commit_id}
    plain = _as_json(
        {
            "version": VERSION,
            **whose,
            "starts": {str(partition): start for partition, start in sorted(state.starts.items())},
            "exported": _encode_ranges(state.exported),
            "gaps": _encode_ranges(state.gaps),
        }
    )
    if len(plain) <= MOST_PLAIN_BYTES:
        return plain
    offsets = pack_offsets(state.starts, state.exported, state.gaps)
    return _as_json({"version": PACKED_VERSION, **whose, "offsets": offsets})


def _as_json(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _encode_ranges(by_partition: Mapping[int, Ranges]) -> dict[str, list[list[int]]]:
    return {
        str(partition): [list(one) for one in ranges]
        for partition, ranges in sorted(by_partition.items())
        if ranges
    }


def decode_state(topic: str, text: str) -> ExportState:
    """The state of `topic`. Raises `ExportStateError`."""
    try:
        fields = json.loads(text)
        version = fields["version"]
        if version not in (VERSION, PACKED_VERSION):
            raise ExportStateError(
                f"{property_of(topic)} has version {version}; this program knows {PACKED_VERSION}: use the version "
                "of Kafscale that wrote it, or a newer one"
            )
        starts, exported, gaps = _offsets_of(fields)
        state = ExportState(
            topic=_text(fields["topic"]),
            topic_id=_text(fields["topic_id"]),
            commit_id=_text(fields["commit_id"]),
            starts=starts,
            exported=exported,
            gaps=gaps,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ExportStateError(
            f"{property_of(topic)} is not an export state: {problem!r} in {text[:200]!r}"
        ) from problem
    if state.topic != topic or not state.commit_id:
        raise ExportStateError(f"{property_of(topic)} is the state of topic {state.topic!r}: {text[:200]!r}")
    return state


def _offsets_of(fields: Mapping[str, Any]) -> tuple[dict[int, int], dict[int, Ranges], dict[int, Ranges]]:
    if fields["version"] == PACKED_VERSION:
        starts, (exported, gaps) = unpack_offsets(_text(fields["offsets"]), 2)
        return starts, exported, gaps
    starts = {int(partition): _offset(start) for partition, start in fields["starts"].items()}
    return starts, _decode_ranges(fields["exported"]), _decode_ranges(fields["gaps"])


def _decode_ranges(fields: Mapping[str, Any]) -> dict[int, Ranges]:
    decoded = {}
    for partition, ranges in fields.items():
        pairs = tuple((_offset(first), _offset(following)) for first, following in ranges)
        if union(pairs) != pairs:
            raise ValueError(f"ranges {pairs} of partition {partition}")
        decoded[int(partition)] = pairs
    return decoded


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is not an offset")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def find_state(
    topic: str,
    ancestors: Iterable[Mapping[str, str]],
    properties: Mapping[str, str],
    others: Iterable[Mapping[str, str]],
    branch: str = MAIN_BRANCH,
) -> ExportState:
    """The export state of a topic in a branch of a table.

    `ancestors`: the summaries of the branch's snapshot and its ancestors, the newest first; `others`: of all
    snapshots that the table remembers. Snapshots override the property, because they go back with the data when a
    table is rolled back, and along when a branch is fast-forwarded. Raises `ExportStateError`.
    """
    name = property_of(topic)
    has_history = False
    for summary in ancestors:
        has_history = True
        if name in summary:
            return decode_state(topic, summary[name])
    own = property_of(topic, branch)
    stored = properties.get(own)
    if stored is None:
        if has_history:
            _check_other_branches(topic, branch, properties)
        return ExportState(topic=topic)
    state = decode_state(topic, stored)
    for summary in others:
        if name in summary and decode_state(topic, summary[name]).commit_id == state.commit_id:
            raise ExportStateError(
                f"the table was rolled back behind every export of topic {topic!r} in its history, so "
                f"what it has of the topic is not known: if it has nothing, remove the table property {own}"
            )
    return state


def _check_other_branches(topic: str, branch: str, properties: Mapping[str, str]) -> None:
    """Refuse to guess whether the branch was fast-forwarded to another one, whose exports its history lost."""
    found = sorted(name for name in properties if topic_of_property(name) == topic)
    if found:
        raise ExportStateError(
            f"nothing in the history of branch {branch} says what it has of topic {topic!r}, which was exported to "
            f"another branch: if it has those rows, set the table property {property_of(topic, branch)} to the value "
            f"of {found[0]}; if it has none of the topic, remove {found[0]}"
        )


def lag(state: ExportState, ends: Mapping[int, int]) -> dict[int, int]:
    """By partition: the offsets from the position up to the log end that are not exported yet."""
    left = {}
    for partition, end in ends.items():
        position = state.position(partition)
        wanted = ((0 if position is None else position, end),)
        left[partition] = sum(
            following - first for first, following in difference(wanted, state.done(partition))
        )
    return left

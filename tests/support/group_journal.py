"""The events of a member of a consumer group, one JSON line each, in a file that outlives a kill -9."""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """`partitions` are assigned to it; with them it has `owned`. Generation -1: the client does not show it."""

    time_s: float
    generation: int
    member_id: str
    partitions: tuple[int, ...]
    owned: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    """`partitions` are revoked. `lost`: another member may own them already."""

    time_s: float
    partitions: tuple[int, ...]
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed:
    """It worked on this record; `value` is the record's, in ASCII."""

    time_s: float
    partition: int
    offset: int
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Committing:
    """It requests to commit these offsets: partition -> offset. One commit at a time."""

    time_s: float
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Its last commit was acknowledged."""

    time_s: float
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFailed:
    """Its last commit was refused, or is indeterminate."""

    time_s: float
    offsets: Mapping[int, int]
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """It left the group in an orderly way."""

    time_s: float


Event = Assigned | Revoked | Processed | Committing | Committed | CommitFailed | Ended
KINDS: Mapping[str, type[Event]] = {
    kind.__name__: kind for kind in (Assigned, Revoked, Processed, Committing, Committed, CommitFailed, Ended)
}


class Journal:
    """Appends events to a file. Each is one write, so that a kill leaves at most one line unfinished."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, event: Event) -> None:
        os.write(self._file, encode(event))

    def close(self) -> None:
        os.close(self._file)


class JournalReader:
    """Reads a journal that is still being written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0
        self.events: list[Event] = []

    def read(self) -> list[Event]:
        """The events since the last call; they are at the end of `events` too."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        new = [decode(line) for line in whole.splitlines()]
        self.events += new
        return new


def encode(event: Event) -> bytes:
    """One line, with its end."""
    return json.dumps({"event": type(event).__name__, **dataclasses.asdict(event)}).encode() + b"\n"


def decode(line: bytes) -> Event:
    """The event in a line."""
    fields: dict[str, Any] = json.loads(line)
    kind = KINDS[fields.pop("event")]
    for name in ("partitions", "owned"):
        if name in fields:
            fields[name] = tuple(fields[name])
    if "offsets" in fields:
        fields["offsets"] = {int(partition): offset for partition, offset in fields["offsets"].items()}
    return kind(**fields)

"""The keys of journals in the object store. Layout: docs/format/object-keys.md."""

import re
from dataclasses import dataclass

from kafscale.formats.object_keys import SYSTEM_FOLDER, namespace_problem

MAX_SEQUENCE = 2**63 - 1

_JOURNAL_ID = re.compile(r"[0-9A-Za-z]([0-9A-Za-z-]{0,62}[0-9A-Za-z])?", re.ASCII)
_ENTRY = re.compile(rf"{SYSTEM_FOLDER}/([^/]+)/journals/([^/]+)/([0-9]{{20}})\.entry", re.ASCII)


@dataclass(frozen=True, slots=True)
class EntryKey:
    """The parts of an entry's key."""

    namespace: str
    journal_id: str
    sequence: int


def journal_id_problem(journal_id: str) -> str | None:
    """Why it cannot be the id of a journal; None for a legal one."""
    if _JOURNAL_ID.fullmatch(journal_id):
        return None
    return f"journal id {journal_id[:80]!r} is not legal: 1 to 64 of a-z A-Z 0-9 -, no - at its ends"


def journals_prefix(namespace: str) -> str:
    """The prefix of every journal of a namespace."""
    return f"{SYSTEM_FOLDER}/{namespace}/journals/"


def journal_prefix(namespace: str, journal_id: str) -> str:
    """The prefix of every entry of a journal."""
    return f"{journals_prefix(namespace)}{journal_id}/"


def entry_key(namespace: str, journal_id: str, sequence: int) -> str:
    """An entry, or the fence in its place."""
    return f"{journal_prefix(namespace, journal_id)}{sequence:020d}.entry"


def parse_entry_key(key: str) -> EntryKey | None:
    """The parts of an entry's key; None for any other key."""
    match = _ENTRY.fullmatch(key)
    if match is None or namespace_problem(match[1]) or journal_id_problem(match[2]):
        return None
    sequence = int(match[3])
    return EntryKey(match[1], match[2], sequence) if sequence <= MAX_SEQUENCE else None

"""The keys of journals in the object store. Layout: docs/format/journal.md."""

import re
import uuid
from dataclasses import dataclass

from kafscale.formats.object_keys import SYSTEM_FOLDER, namespace_problem

MAX_SEQUENCE = 2**63 - 1
JOURNAL_BUCKET_MARK = "x-"
"""The prefix of a journal's id if its entries lie in the journal bucket: a key says in which bucket it is."""

_JOURNAL_ID = re.compile(r"[0-9A-Za-z]([0-9A-Za-z-]{0,62}[0-9A-Za-z])?", re.ASCII)
_ENTRY = re.compile(rf"{SYSTEM_FOLDER}/([^/]+)/journals/([^/]+)/([0-9]{{20}})\.entry", re.ASCII)
_GATHERED = re.compile(rf"{SYSTEM_FOLDER}/([^/]+)/gathered/([^/]+)/([0-9]{{20}})\.gathered", re.ASCII)
_SHARED_SUFFIXES = (".entry", ".gathered")


@dataclass(frozen=True, slots=True)
class EntryKey:
    """The parts of the key of an entry or of a gathered object."""

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


def journal_bucket_prefix(namespace: str) -> str:
    """The prefix of everything that lies in the journal bucket, where there is one."""
    return f"{journals_prefix(namespace)}{JOURNAL_BUCKET_MARK}"


def journal_bucket_folder(namespace: str, name: str) -> str:
    """The prefix of objects in the journal bucket that are no entries."""
    return f"{journal_bucket_prefix(namespace)}{name}/"


def journal_probe_key(namespace: str, token: str, number: int) -> str:
    """As `probe_key`, in the journal bucket."""
    return f"{journal_bucket_folder(namespace, f'probe-{token}')}{number}"


def journal_prefix(namespace: str, journal_id: str) -> str:
    """The prefix of every entry of a journal."""
    return f"{journals_prefix(namespace)}{journal_id}/"


def deleted_prefix(namespace: str) -> str:
    """The prefix of the markers of deleted topics, whose slices may still lie in entries."""
    return f"{SYSTEM_FOLDER}/{namespace}/deleted/"


def deleted_key(namespace: str, topic_id: uuid.UUID) -> str:
    """The marker of a deleted topic: a rebuild from the bucket leaves its slices out."""
    return f"{deleted_prefix(namespace)}{topic_id}"


def is_entry_key(key: str) -> bool:
    """True for the key of an entry, of those that references name."""
    return key.endswith(".entry")


def entry_key(namespace: str, journal_id: str, sequence: int) -> str:
    """An entry, or the fence in its place."""
    return f"{journal_prefix(namespace, journal_id)}{sequence:020d}.entry"


def gathered_prefix(namespace: str) -> str:
    """The prefix of every gathered object of a namespace."""
    return f"{SYSTEM_FOLDER}/{namespace}/gathered/"


def gathered_of_journal_prefix(namespace: str, journal_id: str) -> str:
    """The prefix of the gathered objects of one journal's broker."""
    return f"{gathered_prefix(namespace)}{journal_id}/"


def gathered_key(namespace: str, journal_id: str, sequence: int) -> str:
    """A gathered object of the broker that writes the journal. Their numbers are not those of its entries."""
    return f"{gathered_of_journal_prefix(namespace, journal_id)}{sequence:020d}.gathered"


def is_unsealed_key(key: str) -> bool:
    """True for an entry's key or a gathered object's, of those that references name: many partitions share it."""
    return key.endswith(_SHARED_SUFFIXES)


def parse_entry_key(key: str) -> EntryKey | None:
    """The parts of an entry's key; None for any other key."""
    return _parsed(_ENTRY.fullmatch(key))


def parse_gathered_key(key: str) -> EntryKey | None:
    """The parts of a gathered object's key; None for any other key."""
    return _parsed(_GATHERED.fullmatch(key))


def _parsed(match: re.Match[str] | None) -> EntryKey | None:
    if match is None or namespace_problem(match[1]) or journal_id_problem(match[2]):
        return None
    sequence = int(match[3])
    return EntryKey(match[1], match[2], sequence) if sequence <= MAX_SEQUENCE else None

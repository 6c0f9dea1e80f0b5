"""`kafscale dump`: prints what is in segments, indexes, checkpoints and journals, and what is wrong with them."""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from kafscale.commands.dump_json import as_line, json_lines_of
from kafscale.commands.dump_output import Lines, Progress, escaping
from kafscale.commands.dump_sources import NoSuchSourceError, SourceError, Sources
from kafscale.commands.dump_text import lines_of
from kafscale.commands.dump_values import shown_name
from kafscale.errors import KafscaleError
from kafscale.formats.checkpoint import MAGIC as CHECKPOINT_MAGIC
from kafscale.formats.index import MAGIC as INDEX_MAGIC
from kafscale.formats.journal_entry import FIXED_BYTES, CellKind
from kafscale.formats.journal_entry import MAGIC as JOURNAL_MAGIC
from kafscale.formats.object_keys import parse_index_key, parse_segment_key
from kafscale.formats.segment import MAGIC as SEGMENT_MAGIC
from kafscale.tools.dump.checkpoint_walk import checkpoint_findings
from kafscale.tools.dump.entry_walk import EntryWalk, kind_of
from kafscale.tools.dump.findings import (
    Finding,
    FoundBatch,
    FoundCheckpoint,
    FoundEntry,
    FoundSegmentFooter,
    FoundSegmentHeader,
    FoundSlice,
    Look,
    Note,
    Problem,
)
from kafscale.tools.dump.index_walk import IndexWalk
from kafscale.tools.dump.piece_reader import PieceReader
from kafscale.tools.dump.segment_walk import SegmentWalk

EXIT_SOUND: Final = 0
EXIT_DAMAGED: Final = 1
EXIT_NOT_READ: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_PIPE_CLOSED: Final = 141
"""As of a process that SIGINT or SIGPIPE ended: neither is to be taken for a damaged file."""

MOST_PROBLEMS_REPORTED: Final = 100
"""Of one file on standard error; the others are only counted."""

_MAGIC_BYTES: Final = 4
_KIND_OF_MAGIC: Final = {
    SEGMENT_MAGIC: ".kfs",
    INDEX_MAGIC: ".index",
    CHECKPOINT_MAGIC: ".ckpt",
    JOURNAL_MAGIC: ".entry",
}
_GATHERED: Final = ".gathered"
"""Begins as an entry, and says in its head that it is none."""
_KINDS: Final = (*_KIND_OF_MAGIC.values(), _GATHERED)

# A key of which only the last name matters.
_FOLDER: Final = "namespace/topic/0/"


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """The options of the command line."""

    targets: Sequence[str]
    look: Look
    as_json: bool = False


def run_dump(options: DumpOptions, environment: Mapping[str, str]) -> int:
    """Dump to standard output, with problems and progress on standard error; returns the exit status."""
    output, errors = escaping(sys.stdout), escaping(sys.stderr)
    progress = Progress(errors, time.monotonic) if errors.isatty() and not output.isatty() else None
    try:
        return Dump(options, environment, output, errors, progress).run()
    except BrokenPipeError:
        # What is still buffered would meet the closed pipe once more as the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE_CLOSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


@dataclass(slots=True)
class _Tally:
    batches: int = 0
    records: int = 0
    entries: int = 0
    problems: int = 0

    def add(self, finding: Finding) -> None:
        match finding:
            case FoundBatch():
                self.batches += 1
                self.records += finding.header.record_count
            case FoundEntry() | FoundSlice():
                self.entries += 1
            case FoundCheckpoint():
                self.entries += len(finding.checkpoint.segments)
            case Problem():
                self.problems += 1
            case _:
                pass


class Dump:
    """One run over all files."""

    def __init__(
        self,
        options: DumpOptions,
        environment: Mapping[str, str],
        output: TextIO,
        errors: TextIO,
        progress: Progress | None = None,
    ) -> None:
        self._options = options
        self._environment = environment
        self._lines = Lines(output, errors)
        self._on_read = (lambda count: None) if progress is None else progress.read

    def run(self) -> int:
        """Dump every file; returns the exit status, the worst of all."""
        status = EXIT_SOUND
        with Sources(self._environment, self._on_read) as sources:
            for target in self._options.targets:
                try:
                    status = max(status, self._dump(target, sources))
                except KafscaleError as problem:
                    self._lines.report(str(problem))
                    status = EXIT_NOT_READ
                sources.close_files()
        self._lines.flush()
        return status

    def _dump(self, target: str, sources: Sources) -> int:
        reader = PieceReader(sources.open(target))
        kind = _kind_of(target, reader)
        if self._options.as_json:
            self._lines.write(as_line({"type": "file", "file": target}))
        else:
            self._lines.write(f"Dumping {shown_name(target)}")
        tally = _Tally()
        for finding in self._findings(target, kind, reader, sources):
            tally.add(finding)
            if self._is_shown(finding, kind):
                self._print(finding, target)
            self._report(finding, target, tally)
        if tally.problems > MOST_PROBLEMS_REPORTED:
            self._lines.report(f"{target}: {tally.problems - MOST_PROBLEMS_REPORTED} more problems")
        if self._options.look.verify:
            self._lines.write(self._verdict(target, tally))
        return EXIT_DAMAGED if tally.problems else EXIT_SOUND

    def _findings(self, target: str, kind: str, reader: PieceReader, sources: Sources) -> Iterator[Finding]:
        if _named_kind(target) not in ("", kind):
            yield Problem(text=f"it is named as {_named_kind(target)} and begins as {kind}")
        key = _FOLDER + target.rpartition("/")[2]
        match kind:
            case ".kfs":
                wants_index = self._options.look.from_offset is not None
                index = self._beside(target, ".kfs", ".index", sources) if wants_index else None
                walk = SegmentWalk(reader, self._options.look, key=parse_segment_key(key), index=index)
                yield from walk.findings()
            case ".index":
                segment = self._beside(target, ".index", ".kfs", sources)
                yield from IndexWalk(
                    reader, self._options.look, key=parse_index_key(key), segment=segment
                ).findings()
            case ".entry" | ".gathered":
                yield from EntryWalk(reader, self._options.look, name=target).findings()
            case _:
                yield from checkpoint_findings(reader)

    def _is_shown(self, finding: Finding, kind: str) -> bool:
        """Of an entry that is only verified the rows are enough: it has a segment in each."""
        if kind not in (".entry", _GATHERED) or self._options.look.shows_batches:
            return True
        return not isinstance(finding, FoundSegmentHeader | FoundBatch | FoundSegmentFooter)

    def _beside(self, target: str, suffix: str, other: str, sources: Sources) -> PieceReader | None:
        """The file that belongs to the target, from the same folder or bucket; None where there is none."""
        if not target.endswith(suffix):
            return None
        try:
            return PieceReader(sources.open(target.removesuffix(suffix) + other))
        except NoSuchSourceError:
            return None

    def _print(self, finding: Finding, target: str) -> None:
        lines = json_lines_of(finding, target) if self._options.as_json else lines_of(finding)
        for line in lines:
            self._lines.write(line)

    def _report(self, finding: Finding, target: str, tally: _Tally) -> None:
        if isinstance(finding, Problem) and tally.problems <= MOST_PROBLEMS_REPORTED:
            self._lines.report(f"{target}: {finding.text}")
        elif isinstance(finding, Note):
            self._lines.report(f"{target}: note: {finding.text}")

    def _verdict(self, target: str, tally: _Tally) -> str:
        counts = {
            "batches": tally.batches,
            "records": tally.records,
            "entries": tally.entries,
            "problems": tally.problems,
        }
        is_whole = self._options.look.is_whole
        if self._options.as_json:
            return as_line({"type": "verified", "file": target, "isWhole": is_whole, **counts})
        said = " ".join(f"{name}: {count}" for name, count in counts.items())
        return f"verified: {said}" if is_whole else f"verified in part: {said}"


def _kind_of(target: str, reader: PieceReader) -> str:
    """The suffix of the file's kind: by its first bytes, else by its name. Raises `SourceError`."""
    magic = bytes(reader.view(0, _MAGIC_BYTES))
    kind = _KIND_OF_MAGIC.get(magic) or _named_kind(target)
    if magic == JOURNAL_MAGIC and kind_of(reader.view(0, FIXED_BYTES)) == CellKind.GATHERED:
        return _GATHERED
    if not kind:
        raise SourceError(
            target,
            f"it is no segment, index, checkpoint, entry or gathered object: it begins with {magic!r}, and its name "
            f"does not end in {' or '.join(_KINDS)}",
        )
    return kind


def _named_kind(target: str) -> str:
    return next((kind for kind in _KINDS if target.endswith(kind)), "")

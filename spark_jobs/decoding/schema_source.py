"""Schemas by id as decoders get them from a registry: those of a batch, and a way to name ids that were missing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafscale.lake.registry.documents import SchemaDocument

ReportUnknown = Callable[[int], None]
"""Called in a task, for each id whose schema was missing, once or more often. Can be pickled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSource:
    """`reader`: the schema that defines the columns, None if the options give one. `writers`: by their ids.

    `what`: names the reader in errors.
    """

    reader: SchemaDocument | None
    writers: Mapping[int, SchemaDocument] = field(default_factory=dict)
    report_unknown: ReportUnknown | None = None
    what: str = "the registry's schema"


class UnknownIds:
    """Reports ids that are missing, each once and at most `_MAX_REPORTED`: bytes that are no ids are any number."""

    _MAX_REPORTED = 1_000

    def __init__(self, report: ReportUnknown | None) -> None:
        self._report = report
        self._seen: set[int] = set()

    def add(self, schema_id: int) -> None:
        """The id was met, and its schema is missing."""
        if self._report is not None and schema_id not in self._seen and len(self._seen) < self._MAX_REPORTED:
            self._seen.add(schema_id)
            self._report(schema_id)


def unknown_id(schema_id: int) -> str:
    """The reason of a dead letter whose schema is missing. The same, however often the registry was asked."""
    return f"has the schema id {schema_id}, whose schema is not known"

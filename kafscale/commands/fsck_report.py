"""The report of a check and its repairs: tables for people, an object for programs. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kafscale.ops.report_text import section, table
from kafscale.tools.fsck.findings import (
    Finding,
    FindingKind,
    FsckReport,
    JournalReport,
    JournalStanding,
    Orphan,
    OrphanReason,
    PartitionReport,
    Severity,
)
from kafscale.tools.fsck.repair import RepairOutcome
from kafscale.tools.fsck.repair_plan import Repair, RepairAction

_COLUMNS: Final = (
    "TOPIC",
    "PARTITION",
    "STANDING",
    "SEGMENTS",
    "RECORDS",
    "BYTES",
    "LOG START",
    "LOG END",
    "PROBLEMS",
    "WARNINGS",
    "ORPHANS",
)

_JOURNAL_COLUMNS: Final = (
    "JOURNAL",
    "BROKER",
    "STANDING",
    "ENTRIES",
    "SLICES",
    "BYTES",
    "PROGRESS",
    "ENDED AT",
    "FINDINGS",
)

_KEYS_SHOWN: Final = 3

_REPLACED_TITLE: Final = (
    "Replaced objects, which leaders remove once they are older than KAFSCALE_GARBAGE_GRACE_SEC"
)


def problems_left(
    report: FsckReport, outcomes: Iterable[RepairOutcome], *, ignores_holes: bool
) -> list[Finding]:
    """The problems that are not repaired; `ignores_holes`: holes are none."""
    done = [outcome.repair for outcome in outcomes if not outcome.problem]
    indexes = {key for one in done if one.action is RepairAction.REWRITE_INDEX for key in one.keys}
    # Many partitions name the same entry.
    dropped = {
        (one.subject, key) for one in done if one.action is RepairAction.DROP_MISSING for key in one.keys
    }
    return [
        finding
        for finding in report.all_findings
        if finding.severity is Severity.PROBLEM
        and finding.key not in indexes
        and not (finding.kind is FindingKind.SEGMENT_MISSING and (finding.subject, finding.key) in dropped)
        and not (finding.kind is FindingKind.HOLE_UNEXPLAINED and ignores_holes)
    ]


def as_text(report: FsckReport, repairs: Sequence[Repair], left: Collection[Finding]) -> str:
    """The findings, for people; `left`: what counts as a problem before anything is repaired."""
    lines = [_cluster_line(report)]
    if report.was_checked:
        lines += [_checked_line(report), ""]
        remarkable = [
            one for one in report.partitions if one.findings or one.unreplaced_orphans or one.unjudged_objects
        ]
        if remarkable:
            lines += table([_COLUMNS, *map(_row, remarkable)])
        else:
            lines.append("Nothing is remarkable about any partition.")
    lines += _journal_lines(report.journals)
    findings = report.all_findings
    lines += section("Problems", _finding_lines(findings, Severity.PROBLEM))
    lines += section("Warnings", _finding_lines(findings, Severity.WARNING))
    lines += section("Holes with a reason", _finding_lines(findings, Severity.NOTE))
    lines += _orphan_lines(one for one in report.all_orphans if not one.is_replaced)
    lines += section(_REPLACED_TITLE, _replaced_lines(report.all_orphans))
    if report.foreign_objects:
        title = f"{report.foreign_objects} objects that no broker has put there: left alone"
        lines += section(title, report.foreign_examples)
    lines += section("What --repair does", map(_repair_line, repairs))
    lines += ["", _verdict(report, left)]
    return "\n".join(lines)


def _cluster_line(report: FsckReport) -> str:
    cluster = "no cluster" if report.cluster_id is None else f"cluster {report.cluster_id}"
    brokers = ", ".join(map(str, report.broker_ids))
    running = f"brokers are registered: {brokers}" if brokers else "no broker is registered"
    return f"Namespace {report.namespace!r} of the object store, {cluster}; {running}."


def _checked_line(report: FsckReport) -> str:
    partitions = report.partitions
    how = (
        "every byte was read" if report.is_verified else "records, keys and sizes; --verify reads every byte"
    )
    return (
        f"Checked {len(partitions)} partitions with {sum(one.segment_count for one in partitions)} segments, "
        f"{sum(one.record_count for one in partitions)} records and "
        f"{sum(one.size_bytes for one in partitions)} bytes ({how})."
    )


def _row(report: PartitionReport) -> tuple[str, ...]:
    counts = [
        sum(finding.severity is severity for finding in report.findings)
        for severity in (Severity.PROBLEM, Severity.WARNING)
    ]
    return (
        report.topic,
        str(report.partition),
        report.standing.value,
        str(report.segment_count),
        str(report.record_count),
        str(report.size_bytes),
        str(report.log_start_offset),
        str(report.log_end_offset),
        *(str(count or "-") for count in (*counts, len(report.unreplaced_orphans))),
    )


def _journal_lines(journals: Sequence[JournalReport]) -> list[str]:
    """A line for all, and a row for each that has not ended, or has something wrong."""
    if not journals:
        return []
    entries = sum(one.entries for one in journals)
    gathered = sum(one.gathered for one in journals)
    free = sum(one.needless for one in journals)
    lines = [
        "",
        f"Checked {len(journals)} journals with {entries} entries ({sum(one.size_bytes for one in journals)} bytes) "
        f"and {gathered} gathered objects ({sum(one.gathered_bytes for one in journals)} bytes); no record needs "
        f"{free} of these ({sum(one.needless_bytes for one in journals)} bytes), and brokers delete them.",
    ]
    remarkable = [one for one in journals if one.findings or one.standing is not JournalStanding.ENDED]
    return [*lines, "", *table([_JOURNAL_COLUMNS, *map(_journal_row, remarkable)])] if remarkable else lines


def _journal_row(report: JournalReport) -> tuple[str, ...]:
    return (
        report.journal_id,
        "-" if report.broker_id is None else str(report.broker_id),
        report.standing.value,
        str(report.entries),
        str(report.slices),
        str(report.size_bytes),
        "-" if report.progress is None else str(report.progress),
        "-" if report.ended_at is None else str(report.ended_at),
        str(len(report.findings) or "-"),
    )


def _finding_lines(findings: Iterable[Finding], severity: Severity) -> Iterator[str]:
    for finding in findings:
        if finding.severity is severity:
            parts = [finding.kind.value, finding.detail, _offsets(finding), finding.key]
            yield f"{finding.subject}: {'; '.join(part for part in parts if part)}"


def _offsets(finding: Finding) -> str:
    if finding.first_offset is None or finding.kind is FindingKind.OFFSET_BEYOND_END:
        return ""
    if finding.first_offset == finding.last_offset:
        return f"offset {finding.first_offset}"
    return f"offsets {finding.first_offset} to {finding.last_offset}"


def _orphan_lines(orphans: Iterable[Orphan]) -> list[str]:
    by_reason: dict[OrphanReason, list[Orphan]] = defaultdict(list)
    for orphan in orphans:
        by_reason[orphan.reason].append(orphan)
    lines = []
    for reason in OrphanReason:
        found = by_reason.get(reason)
        if found:
            size_bytes = sum(orphan.size_bytes for orphan in found)
            title = f"Orphans, {reason.value} ({len(found)} objects, {size_bytes} bytes)"
            lines += section(title, (orphan.key for orphan in found))
    return lines


def _replaced_lines(orphans: Iterable[Orphan]) -> Iterator[str]:
    """A count for each reason: merging alone leaves hundreds behind."""
    sizes: dict[OrphanReason, list[int]] = defaultdict(list)
    for orphan in orphans:
        if orphan.is_replaced:
            sizes[orphan.reason].append(orphan.size_bytes)
    for reason in OrphanReason:
        if reason in sizes:
            yield f"{reason.value}: {len(sizes[reason])} objects, {sum(sizes[reason])} bytes"


def _repair_line(repair: Repair) -> str:
    shown = ", ".join(repair.keys[:_KEYS_SHOWN])
    more = f" and {len(repair.keys) - _KEYS_SHOWN} more" if len(repair.keys) > _KEYS_SHOWN else ""
    lost = f"; LOST: {_lost(repair)}" if repair.lost else ""
    condition = "; not while brokers are registered" if repair.needs_no_brokers else ""
    return f"{repair.subject}: {repair.action.value}{lost}{condition}: {shown}{more}"


def _lost(repair: Repair) -> str:
    return ", ".join(f"offsets {first} to {last}" for first, last in repair.lost)


def _verdict(report: FsckReport, left: Collection[Finding]) -> str:
    warnings = sum(finding.severity is Severity.WARNING for finding in report.all_findings)
    replaced = sum(orphan.is_replaced for orphan in report.all_orphans)
    counts = f"{warnings} warnings, {len(report.all_orphans) - replaced} orphans"
    if replaced:
        counts += f", {replaced} replaced objects"
    if not report.was_checked:
        return "Nothing was compared: the two stores do not belong together."
    return f"{len(left)} problems, {counts}." if left else f"No problems; {counts}."


def outcome_lines(outcomes: Iterable[RepairOutcome]) -> list[str]:
    """The outcome of the repairs, for people."""
    lines = []
    for outcome in outcomes:
        repair = outcome.repair
        what = f"NOT DONE: {outcome.problem}" if outcome.problem else outcome.detail
        lost = f"; LOST: {_lost(repair)}" if repair.lost and not outcome.problem else ""
        lines.append(f"{repair.subject}: {repair.action.value}: {what}{lost}")
    return section("Repairs", lines) or ["", "There was nothing to repair."]


def as_fields(
    report: FsckReport,
    repairs: Sequence[Repair],
    outcomes: Sequence[RepairOutcome],
    left: Collection[Finding],
) -> dict[str, Any]:
    """All of it for programs; docs/fsck.md lists the fields. `outcomes`: empty when nothing was carried out."""
    by_repair = {outcome.repair: outcome for outcome in outcomes}
    return {
        "namespace": report.namespace,
        "cluster_id": report.cluster_id,
        "brokers": list(report.broker_ids),
        "checked": report.was_checked,
        "verified": report.is_verified,
        "problems_left": len(left),
        "findings": [_finding_fields(finding) for finding in report.findings],
        "partitions": [_partition_fields(partition) for partition in report.partitions],
        "journals": [_journal_fields(journal) for journal in report.journals],
        "foreign_objects": report.foreign_objects,
        "foreign_examples": list(report.foreign_examples),
        "repairs": [_repair_fields(repair, by_repair.get(repair)) for repair in repairs],
    }


def _partition_fields(report: PartitionReport) -> Mapping[str, Any]:
    return {
        "topic": report.topic,
        "partition": report.partition,
        "standing": report.standing.name,
        "segments": report.segment_count,
        "records": report.record_count,
        "bytes": report.size_bytes,
        "log_start_offset": report.log_start_offset,
        "log_end_offset": report.log_end_offset,
        "unjudged_objects": report.unjudged_objects,
        "findings": [_finding_fields(finding) for finding in report.findings],
        "orphans": [_orphan_fields(orphan) for orphan in report.orphans],
    }


def _journal_fields(report: JournalReport) -> Mapping[str, Any]:
    return {
        "journal": report.journal_id,
        "broker": report.broker_id,
        "standing": report.standing.name,
        "progress": report.progress,
        "ended_at": report.ended_at,
        "entries": report.entries,
        "slices": report.slices,
        "bytes": report.size_bytes,
        "refused_entries": report.refused,
        "gathered_objects": report.gathered,
        "gathered_bytes": report.gathered_bytes,
        "needless_objects": report.needless,
        "needless_bytes": report.needless_bytes,
        "findings": [_finding_fields(finding) for finding in report.findings],
    }


def _finding_fields(finding: Finding) -> Mapping[str, Any]:
    return {
        "kind": finding.kind.name,
        "severity": finding.severity.value,
        "subject": finding.subject,
        "says": finding.kind.value,
        "detail": finding.detail,
        "key": finding.key or None,
        "first_offset": finding.first_offset,
        "last_offset": finding.last_offset,
    }


def _orphan_fields(orphan: Orphan) -> Mapping[str, Any]:
    return {
        "key": orphan.key,
        "bytes": orphan.size_bytes,
        "modified_ms": orphan.modified_ms,
        "reason": orphan.reason.name,
        "replaced": orphan.is_replaced,
        "because": orphan.because or None,
    }


def _repair_fields(repair: Repair, outcome: RepairOutcome | None) -> Mapping[str, Any]:
    return {
        "action": repair.action.name,
        "topic": repair.topic,
        "partition": repair.partition if repair.partition >= 0 else None,
        "keys": list(repair.keys),
        "lost": [{"first_offset": first, "last_offset": last} for first, last in repair.lost],
        "needs_no_brokers": repair.needs_no_brokers,
        "outcome": None
        if outcome is None
        else {"done": not outcome.problem, "detail": outcome.detail or outcome.problem},
    }

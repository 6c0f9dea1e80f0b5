"""The result of a comparison: tables for people, an object for programs. Pure."""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from kafscale.lake.ranges import Ranges, size
from kafscale.lake.reconciling.comparison import (
    Comparison,
    Difference,
    DifferenceKind,
    SpanCheck,
    Tally,
    Unexpected,
)
from kafscale.lake.reconciling.spans import PartitionPlan, Standing
from kafscale.ops.report_text import section, table

MOST_RANGES_SHOWN: Final = 40
"""Beyond it, people see a line for each partition, and the ranges that differ."""

_COLUMNS: Final = (
    "PARTITION",
    "OFFSETS",
    "TOPIC ROWS",
    "TABLE ROWS",
    "DEAD LETTERS",
    "TOPIC HASH",
    "TABLE HASH",
    "RESULT",
)
_HASH_BITS: Final = (1 << 64) - 1


def as_text(found: Comparison, *, shows_all: bool) -> str:
    """For people; `shows_all`: every range, even if there are many."""
    dead_letters = f" and {found.dead_letter_table}" if found.dead_letter_table else ""
    lines = [f"Topic {found.topic!r} against {found.table}{dead_letters}:", ""]
    if found.refusal:
        return "\n".join([*lines[:1], "", f"DIFFERENT: {found.refusal}."])
    rows = [_row(check) for check in found.checks]
    if not shows_all and len(rows) > MOST_RANGES_SHOWN:
        rows = list(_partition_rows(found))
        rows += [_row(check) for check in found.differing][:MOST_RANGES_SHOWN]
    lines += table([_COLUMNS, *rows]) if rows else ["Nothing is exported, says the table."]
    lines += section("Not exported yet", _range_lines(found, lambda plan: plan.lag))
    lines += section(
        "Not to be exported yet: transactions are open", _range_lines(found, lambda plan: plan.undecided)
    )
    lines += section(
        "Gaps: expired before they were exported, and recorded", _range_lines(found, lambda plan: plan.gaps)
    )
    lines += section(
        "Older than where the export began, or than what it was asked for",
        _range_lines(found, lambda plan: plan.before_start),
    )
    lines += section("Columns that are not compared", found.not_compared)
    lines += section("Differences", _difference_lines(found))
    return "\n".join([*lines, "", _verdict(found)])


def _row(check: SpanCheck) -> tuple[str, ...]:
    span = check.span
    return _cells(
        str(span.partition),
        f"{span.first} to {span.next_offset - 1}",
        check.topic,
        check.table,
        check.dead_letters,
        _result(check),
    )


def _partition_rows(found: Comparison) -> Iterator[tuple[str, ...]]:
    # They are in order, and what has expired comes before the rest.
    for (partition, standing), group in groupby(
        found.checks, key=lambda one: (one.span.partition, one.span.standing)
    ):
        checks = list(group)
        compared = standing is Standing.COMPARED
        differing = sum(not check.agrees for check in checks)
        agreed = f"equal{_away(sum(check.compacted_away for check in checks))}" if compared else "expired"
        yield _cells(
            str(partition),
            f"{checks[0].span.first} to {checks[-1].span.next_offset - 1}",
            _total(check.topic for check in checks if check.topic is not None) if compared else None,
            _total(check.table for check in checks),
            _total(check.dead_letters for check in checks),
            f"{differing} of {len(checks)} ranges DIFFERENT" if differing else agreed,
        )


def _cells(
    partition: str, offsets: str, topic: Tally | None, rows: Tally, dead_letters: Tally, result: str
) -> tuple[str, ...]:
    return (
        partition,
        offsets,
        "-" if topic is None else str(topic.count),
        str(rows.count),
        str(dead_letters.count or "-"),
        "-" if topic is None else _hash(topic),
        _hash(rows + dead_letters),
        result,
    )


def _total(tallies: Iterable[Tally]) -> Tally:
    return sum(tallies, Tally())


def _hash(tally: Tally) -> str:
    return f"{tally.hash_sum & _HASH_BITS:016x}"


def _result(check: SpanCheck) -> str:
    if not check.agrees:
        return "DIFFERENT"
    return "expired" if check.topic is None else f"equal{_away(check.compacted_away)}"


def _away(count: int) -> str:
    return f", {count} compacted away" if count else ""


def _range_lines(found: Comparison, ranges_of: Callable[[PartitionPlan], Ranges]) -> Iterator[str]:
    for plan in found.plans:
        for first, following in ranges_of(plan):
            yield f"{found.topic}-{plan.partition}: {_offsets(first, following - 1)}"


def _offsets(first: int, last: int) -> str:
    return f"offset {first}" if first == last else f"offsets {first} to {last}"


def _difference_lines(found: Comparison) -> Iterator[str]:
    for plan in found.plans:
        for first, following in plan.beyond_end:
            kind = DifferenceKind.BEYOND_END.value
            yield f"{found.topic}-{plan.partition}: {_offsets(first, following - 1)}: {kind}, {plan.log_end_offset}"
    for one in found.unexpected:
        yield _unexpected_line(found, one)
    for check in found.differing:
        if check.duplicates:
            where = f"{found.topic}-{check.span.partition}: {_offsets(check.span.first, check.span.next_offset - 1)}"
            yield f"{where}: {_rows(check.duplicates)} too many ({DifferenceKind.DUPLICATE.value})"
    for difference in found.differences:
        yield _difference_line(found, difference)


def _unexpected_line(found: Comparison, one: Unexpected) -> str:
    tally = one.tally
    if one.partition is None or tally.first < 0:
        return f"{_rows(tally.count)} of {found.topic} without partition or offset"
    where = f"{found.topic}-{one.partition}: {_offsets(tally.first, tally.last)}"
    return f"{where}: {_rows(tally.count)} {DifferenceKind.UNEXPECTED.value}"


def _rows(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"


def _difference_line(found: Comparison, one: Difference) -> str:
    columns = f": {', '.join(one.columns)}" if one.columns else ""
    return (
        f"{found.topic}-{one.partition}: {_offsets(one.first, one.last)}: {one.rows} "
        f"{'record' if one.rows == 1 else 'records'} {one.kind.value}{columns}"
    )


def _verdict(found: Comparison) -> str:
    lag = sum(size(plan.lag) for plan in found.plans)
    expired = sum(
        check.table.count + check.dead_letters.count for check in found.checks if check.topic is None
    )
    compared = sum(check.topic.count for check in found.checks if check.topic is not None)
    apart = []
    if expired:
        apart.append(f"{expired} rows are of records that the topic no longer has")
    if found.compacted_away:
        apart.append(
            f"{found.compacted_away} rows are of records that were compacted away, whose values were not compared"
        )
    aborted = sum(plan.aborted_transactions for plan in found.plans)
    if aborted:
        apart.append(f"the records of {aborted} aborted transactions are on neither side")
    if lag:
        apart.append(f"{lag} offsets are not exported yet")
    undecided = sum(size(plan.undecided) for plan in found.plans)
    if undecided:
        apart.append(f"{undecided} offsets wait for transactions that are open")
    told = "; ".join(["", *apart])
    if found.agrees:
        return f"Topic and table agree on {compared} records{told}."
    kinds = ", ".join(f"{count} {kind.value}" for kind, count in found.kinds.items())
    more = (
        f"; {found.spans_not_looked_into} more ranges differ and were not looked into"
        if found.spans_not_looked_into
        else ""
    )
    where = f"{len(found.differing)} of {len(found.checks)} ranges"
    return f"DIFFERENT in {where}{f' ({kinds})' if kinds else ''}{more}{told}."


def as_fields(found: Comparison) -> dict[str, Any]:
    """For programs; docs/reconcile.md lists the fields."""
    checks: dict[int, list[SpanCheck]] = {}
    for check in found.checks:
        checks.setdefault(check.span.partition, []).append(check)
    return {
        "topic": found.topic,
        "table": found.table,
        "dead_letter_table": found.dead_letter_table,
        "agrees": found.agrees,
        "refusal": found.refusal or None,
        "is_compacted": found.is_compacted,
        "partitions": [_plan_fields(plan, checks.get(plan.partition, [])) for plan in found.plans],
        "columns_not_compared": list(found.not_compared),
        "kinds": {kind.name: count for kind, count in found.kinds.items()},
        "differences": [_difference_fields(one) for one in found.differences],
        "unexpected": [{"partition": one.partition, **_tally_fields(one.tally)} for one in found.unexpected],
        "ranges_not_looked_into": found.spans_not_looked_into,
    }


def _plan_fields(plan: PartitionPlan, checks: Iterable[SpanCheck]) -> dict[str, Any]:
    return {
        "partition": plan.partition,
        "log_start_offset": plan.log_start_offset,
        "log_end_offset": plan.log_end_offset,
        "lag": _range_fields(plan.lag),
        "undecided": _range_fields(plan.undecided),
        "aborted_transactions": plan.aborted_transactions,
        "gaps": _range_fields(plan.gaps),
        "before_start": _range_fields(plan.before_start),
        "beyond_end": _range_fields(plan.beyond_end),
        "ranges": [_check_fields(check) for check in checks],
    }


def _check_fields(check: SpanCheck) -> dict[str, Any]:
    return {
        "first_offset": check.span.first,
        "last_offset": check.span.next_offset - 1,
        "standing": check.span.standing.value,
        "agrees": check.agrees,
        "topic": None if check.topic is None else _tally_fields(check.topic),
        "table": _tally_fields(check.table),
        "dead_letters": _tally_fields(check.dead_letters),
        "duplicates": check.duplicates,
        "compacted_away": check.compacted_away,
    }


def _tally_fields(tally: Tally) -> dict[str, Any]:
    return {
        "rows": tally.count,
        "first_offset": tally.first if tally.first >= 0 else None,
        "last_offset": tally.last if tally.last >= 0 else None,
        # More digits than programs keep exactly of a number.
        "hash": str(tally.hash_sum),
    }


def _range_fields(ranges: Ranges) -> list[dict[str, int]]:
    return [{"first_offset": first, "last_offset": following - 1} for first, following in ranges]


def _difference_fields(one: Difference) -> dict[str, Any]:
    return {
        "kind": one.kind.name,
        "partition": one.partition,
        "first_offset": one.first,
        "last_offset": one.last,
        "records": one.rows,
        "columns": list(one.columns),
    }

"""The comparison finds damage of any kind: without Spark, whose counting is done in Python here."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kafscale.lake.export_state import ExportState
from kafscale.lake.ranges import Ranges, intersection, size, union
from kafscale.lake.reconciling.comparison import (
    NOTHING,
    Comparison,
    Difference,
    DifferenceKind,
    SpanCheck,
    Tally,
    Unexpected,
    check_spans,
    classify,
    joined_runs,
    whole_span_difference,
)
from kafscale.lake.reconciling.spans import PartitionPlan, Span, Standing, plan_partition
from kafscale.reader.topic_state import PartitionLog

TOPIC_ID = str(UUID(int=7))
OFFSETS = st.integers(0, 60)
RANGES = st.lists(st.tuples(OFFSETS, OFFSETS), max_size=4).map(union)


def log_of(log_start: int, log_end: int, partition: int = 0) -> PartitionLog:
    return PartitionLog(
        topic="events",
        topic_id=UUID(TOPIC_ID),
        partition=partition,
        log_start_offset=log_start,
        log_end_offset=log_end,
        references=(),
    )


def state_of(exported: Ranges, gaps: Ranges = (), start: int = 0) -> ExportState:
    return ExportState(
        topic="events",
        topic_id=TOPIC_ID,
        commit_id="c1",
        starts={0: start},
        exported={0: exported},
        gaps={0: gaps},
    )


def ranges_of(plan: PartitionPlan, standing: Standing) -> Ranges:
    return union((one.first, one.next_offset) for one in plan.spans if one.standing is standing)


@given(RANGES, RANGES, OFFSETS, OFFSETS, OFFSETS, st.integers(1, 70))
def test_every_offset_has_one_standing(
    exported: Ranges, gaps: Ranges, start: int, one: int, other: int, range_size: int
) -> None:
    log_start, log_end = sorted((one, other))
    plan = plan_partition(state_of(exported, gaps, start), log_of(log_start, log_end), range_size)
    expired, compared = ranges_of(plan, Standing.EXPIRED), ranges_of(plan, Standing.COMPARED)
    assert union(expired, compared, plan.beyond_end) == exported
    assert size(expired) + size(compared) + size(plan.beyond_end) == size(exported)
    assert compared == intersection(exported, ((log_start, log_end),))
    assert union(compared, plan.lag, plan.before_start, intersection(gaps, ((log_start, log_end),))) == union(
        ((log_start, log_end),)
    )
    assert not intersection(plan.lag, compared)
    assert all(first >= start for first, _ in plan.lag)
    for span in plan.spans:
        assert span.first // range_size == (span.next_offset - 1) // range_size
    assert sum(span.next_offset - span.first for span in plan.spans) == size(expired) + size(compared)


def test_a_range_is_cut_at_multiples_of_the_size() -> None:
    spans = plan_partition(state_of(((5, 25),)), log_of(12, 30), 10).spans
    assert [(one.first, one.next_offset, one.standing.value) for one in spans] == [
        (5, 10, "expired"),
        (10, 12, "expired"),
        (12, 20, "compared"),
        (20, 25, "compared"),
    ]


def test_what_is_not_exported_is_no_difference() -> None:
    plan = plan_partition(state_of(((10, 20),), gaps=((25, 30),), start=10), log_of(0, 50), 100)
    assert plan.before_start == ((0, 10),)
    assert plan.lag == ((20, 25), (30, 50))
    assert plan.gaps == ((25, 30),)
    unknown = plan_partition(ExportState(topic="events"), log_of(3, 9), 100)
    assert (unknown.spans, unknown.lag) == ((), ((3, 9),))
    assert Comparison(topic="events", table="t", dead_letter_table=None, plans=(plan, unknown)).agrees


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row as far as the comparison goes; `dead` ones are in the other table."""

    offset: int
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    timestamp: int = 0
    headers: tuple[tuple[str, bytes | None], ...] | None = None
    dead: bool = False


PLAN = plan_partition(state_of(((0, 40),)), log_of(10, 60), 10)
ROWS = st.sets(st.integers(10, 39), min_size=1).map(
    lambda offsets: [Row(offset=offset, dead=offset % 7 == 0) for offset in sorted(offsets)]
)


def row_hash(row: Row) -> int:
    content = repr(replace(row, dead=False)).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big", signed=True)


def tallied(rows: Sequence[Row]) -> tuple[dict[Span, Tally], list[Row]]:
    """Counts like Spark."""
    found: dict[Span, Tally] = defaultdict(Tally)
    outside = []
    for row in rows:
        one = Tally(count=1, first=row.offset, last=row.offset, hash_sum=row_hash(row))
        spans = [span for span in PLAN.spans if span.first <= row.offset < span.next_offset]
        for span in spans:
            found[span] += one
        if not spans:
            outside.append(row)
    return found, outside


def compare(topic: Sequence[Row], stored: Sequence[Row]) -> Comparison:
    table, outside = tallied([row for row in stored if not row.dead])
    dead, _ = tallied([row for row in stored if row.dead])
    checks = check_spans(PLAN.spans, tallied(topic)[0], table, dead, {})
    whole = [found for check in checks if (found := whole_span_difference(check))]
    return Comparison(
        topic="events",
        table="local.db.events",
        dead_letter_table=None,
        plans=(PLAN,),
        checks=checks,
        unexpected=tuple(
            Unexpected(partition=0, tally=Tally(count=1, first=row.offset, last=row.offset))
            for row in outside
        ),
        differences=joined_runs(whole),
    )


@given(ROWS, st.randoms(use_true_random=False))
def test_the_same_rows_agree_in_any_order(rows: list[Row], random: object) -> None:
    stored = list(rows)
    random.shuffle(stored)  # type: ignore[attr-defined]
    found = compare(rows, stored)
    assert found.agrees
    assert not found.differing


CHANGES: list[dict[str, object]] = [
    {"key": None},
    {"key": b""},
    {"value": b"V"},
    {"value": None},
    {"timestamp": 1},
    {"headers": ()},
    {"headers": (("h", None),)},
]


@given(ROWS, st.data())
def test_damage_is_always_found_where_it_is(rows: list[Row], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(rows) - 1))
    row = rows[place]
    damage = data.draw(st.sampled_from(["loss", "duplicate", "change", "move"]))
    stored = [*rows[:place], *rows[place + 1 :]]
    if damage == "duplicate":
        stored += [row, replace(row, dead=data.draw(st.booleans()))]
    elif damage == "change":
        stored.append(replace(row, **data.draw(st.sampled_from(CHANGES))))  # type: ignore[arg-type]
    elif damage == "move":
        stored.append(replace(row, offset=row.offset + 1))
    found = compare(rows, stored)
    assert not found.agrees
    damaged = [check.span for check in found.differing]
    there = {span for span in PLAN.spans if span.first <= row.offset < span.next_offset}
    if damage == "move":
        there |= {span for span in PLAN.spans if span.first <= row.offset + 1 < span.next_offset}
    assert set(damaged) == there


@given(ROWS, st.integers(40, 100))
def test_rows_that_the_table_does_not_say_it_has_are_found(rows: list[Row], offset: int) -> None:
    found = compare(rows, [*rows, Row(offset=offset)])
    assert not found.agrees
    assert not found.differing
    assert [one.tally.first for one in found.unexpected] == [offset]


def test_an_empty_side_is_reported_without_looking_at_rows() -> None:
    rows = [Row(offset=offset) for offset in range(10, 40)]
    found = compare(rows, [row for row in rows if row.offset >= 30])
    assert found.differences == (
        Difference(partition=0, first=10, last=29, kind=DifferenceKind.MISSING, rows=20),
    )
    found = compare(rows[:10], rows)
    assert [(one.first, one.last, one.kind) for one in found.differences] == [(20, 39, DifferenceKind.EXTRA)]


def test_of_expired_records_only_duplicates_are_a_difference() -> None:
    rows = [Row(offset=offset) for offset in range(40)]
    assert compare(rows[10:], rows).agrees
    span = PLAN.spans[0]
    assert span.standing is Standing.EXPIRED
    check = SpanCheck(span=span, topic=None, table=tallied(rows)[0][span], dead_letters=NOTHING)
    assert check.agrees
    assert not replace(check, duplicates=1).agrees


def test_a_log_that_ends_before_the_table_is_a_difference() -> None:
    plan = plan_partition(state_of(((0, 40),)), log_of(0, 30), 100)
    assert plan.beyond_end == ((30, 40),)
    assert not Comparison(topic="events", table="t", dead_letter_table=None, plans=(plan,)).agrees


def test_offsets_are_classified() -> None:
    assert classify(1, 1, same=True) is None
    assert classify(1, 1, same=False) is DifferenceKind.CHANGED
    assert classify(1, 0, same=False) is DifferenceKind.MISSING
    assert classify(0, 1, same=False) is DifferenceKind.EXTRA
    assert classify(1, 2, same=True) is DifferenceKind.DUPLICATE
    assert classify(0, 2, same=True) is DifferenceKind.DUPLICATE


def test_rows_that_were_compacted_away_are_no_difference() -> None:
    assert classify(0, 1, same=False, is_compacted=True) is None
    assert classify(1, 0, same=False, is_compacted=True) is DifferenceKind.MISSING
    assert classify(1, 2, same=True, is_compacted=True) is DifferenceKind.DUPLICATE
    assert classify(1, 1, same=False, is_compacted=True) is DifferenceKind.CHANGED
    rows = [Row(offset=offset) for offset in range(10, 20)]
    (span,) = tallied(rows)[0]
    left = tallied(rows[5:])[0]
    (check,) = check_spans([span], left, left, {}, {}, {span: 5})
    assert check.agrees
    assert not replace(check, duplicates=1).agrees
    assert not replace(check, table=tallied(rows[6:])[0][span]).agrees


def test_neighbours_that_differ_alike_are_joined() -> None:
    def one(offset: int, partition: int = 0, *columns: str) -> Difference:
        return Difference(
            partition=partition, first=offset, last=offset, kind=DifferenceKind.CHANGED, columns=columns
        )

    found = joined_runs([one(5), one(3), one(4), one(6, 0, "key"), one(8), one(9, 1)])
    assert [(run.partition, run.first, run.last, run.columns, run.rows) for run in found] == [
        (0, 3, 5, (), 3),
        (0, 6, 6, ("key",), 1),
        (0, 8, 8, (), 1),
        (1, 9, 9, (), 1),
    ]

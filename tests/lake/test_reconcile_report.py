"""The report of a comparison, for people and for programs."""

import json
from dataclasses import replace

from kafscale.lake.reconciling.comparison import (
    NOTHING,
    Comparison,
    Difference,
    DifferenceKind,
    SpanCheck,
    Tally,
    Unexpected,
)
from kafscale.lake.reconciling.report import MOST_RANGES_SHOWN, as_fields, as_text
from kafscale.lake.reconciling.spans import PartitionPlan, Span, Standing


def check(
    first: int, *, partition: int = 0, rows: int = 10, hash_sum: int = 7, is_expired: bool = False
) -> SpanCheck:
    standing = Standing.EXPIRED if is_expired else Standing.COMPARED
    span = Span(partition=partition, first=first, next_offset=first + 10, standing=standing)
    topic = Tally(count=10, first=first, last=first + 9, hash_sum=7)
    table = replace(topic, count=rows, hash_sum=hash_sum) if rows else NOTHING
    return SpanCheck(span=span, topic=None if is_expired else topic, table=table, dead_letters=NOTHING)


def found(*checks: SpanCheck) -> Comparison:
    plan = PartitionPlan(
        partition=0,
        log_start_offset=10,
        log_end_offset=100,
        spans=tuple(one.span for one in checks),
        lag=((90, 100),),
    )
    return Comparison(
        topic="events",
        table="local.db.events",
        dead_letter_table="local.db.events_dead_letters",
        plans=(plan,),
        checks=checks,
    )


def test_sides_stand_side_by_side() -> None:
    text = as_text(found(check(0, is_expired=True), check(10), check(20, hash_sum=-1)), shows_all=False)
    assert text.splitlines() == [
        "Topic 'events' against local.db.events and local.db.events_dead_letters:",
        "",
        "PARTITION   OFFSETS  TOPIC ROWS  TABLE ROWS  DEAD LETTERS        TOPIC HASH        TABLE HASH     RESULT",
        "0            0 to 9           -          10             -                 -  0000000000000007    expired",
        "0          10 to 19          10          10             -  0000000000000007  0000000000000007      equal",
        "0          20 to 29          10          10             -  0000000000000007  ffffffffffffffff  DIFFERENT",
        "",
        "Not exported yet:",
        "  events-0: offsets 90 to 99",
        "",
        "DIFFERENT in 1 of 3 ranges; 10 rows are of records that the topic no longer has; "
        "10 offsets are not exported yet.",
    ]


def test_of_many_ranges_partitions_are_shown_and_what_differs() -> None:
    checks = [check(10 * place, is_expired=place < 2) for place in range(MOST_RANGES_SHOWN)]
    checks += [check(10 * place, partition=1, rows=0 if place == 3 else 10) for place in range(5)]
    comparison = found(*checks)
    lines = [line.split()[1:] for line in as_text(comparison, shows_all=False).splitlines()[3:7]]
    assert [line[:5] for line in lines] == [
        ["0", "to", "19", "-", "20"],
        ["20", "to", "399", "380", "380"],
        ["0", "to", "49", "50", "40"],
        ["30", "to", "39", "10", "0"],
    ]
    assert " ".join(lines[2][-5:]) == "1 of 5 ranges DIFFERENT"
    assert lines[3][-1] == "DIFFERENT"
    shown = as_text(comparison, shows_all=True)
    assert shown.count("equal") == MOST_RANGES_SHOWN - 2 + 4


def test_differences_are_shown_in_words_and_as_fields() -> None:
    plan = found().plans[0]
    comparison = replace(
        found(check(10, rows=9)),
        plans=(replace(plan, beyond_end=((100, 120),), gaps=((3, 5),), before_start=((0, 2),)),),
        unexpected=(
            Unexpected(partition=None, tally=Tally(count=2)),
            Unexpected(partition=0, tally=Tally(count=1, first=95, last=95, hash_sum=3)),
        ),
        kinds={DifferenceKind.MISSING: 1},
        differences=(Difference(partition=0, first=12, last=12, kind=DifferenceKind.MISSING),),
        spans_not_looked_into=4,
        not_compared=("remark: the topic does not have it",),
    )
    text = as_text(comparison, shows_all=False)
    for line in (
        "  events-0: offsets 3 to 4",
        "  events-0: offsets 0 to 1",
        "  remark: the topic does not have it",
        "  events-0: offsets 100 to 119: exported, the table says, but beyond the log's end, 100",
        "  2 rows of events without partition or offset",
        "  events-0: offset 95: 1 row in the table, which does not say that it has them",
        "  events-0: offset 12: 1 record missing from the table",
        "DIFFERENT in 1 of 1 ranges (1 missing from the table); 4 more ranges differ and were not looked into; "
        "10 offsets are not exported yet.",
    ):
        assert line in text.splitlines()
    fields = json.loads(json.dumps(as_fields(comparison)))
    [partition] = fields.pop("partitions")
    assert fields == {
        "topic": "events",
        "table": "local.db.events",
        "dead_letter_table": "local.db.events_dead_letters",
        "agrees": False,
        "refusal": None,
        "is_compacted": False,
        "columns_not_compared": ["remark: the topic does not have it"],
        "kinds": {"MISSING": 1},
        "differences": [
            {
                "kind": "MISSING",
                "partition": 0,
                "first_offset": 12,
                "last_offset": 12,
                "records": 1,
                "columns": [],
            }
        ],
        "unexpected": [
            {"partition": None, "rows": 2, "first_offset": None, "last_offset": None, "hash": "0"},
            {"partition": 0, "rows": 1, "first_offset": 95, "last_offset": 95, "hash": "3"},
        ],
        "ranges_not_looked_into": 4,
    }
    assert partition["beyond_end"] == [{"first_offset": 100, "last_offset": 119}]
    assert partition["ranges"] == [
        {
            "first_offset": 10,
            "last_offset": 19,
            "standing": "compared",
            "agrees": False,
            "topic": {"rows": 10, "first_offset": 10, "last_offset": 19, "hash": "7"},
            "table": {"rows": 9, "first_offset": 10, "last_offset": 19, "hash": "7"},
            "dead_letters": {"rows": 0, "first_offset": None, "last_offset": None, "hash": "0"},
            "duplicates": 0,
            "compacted_away": 0,
        }
    ]


def test_nothing_exported_and_nothing_there() -> None:
    text = as_text(found(), shows_all=False)
    assert "Nothing is exported, says the table." in text
    assert text.endswith("Topic and table agree on 0 records; 10 offsets are not exported yet.")

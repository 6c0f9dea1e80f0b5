"""The rounds of `kafscale export`: one, or one after the other until it is stopped; a failure ends none."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from kafscale.cluster.iceberg_configs import IcebergConfig
from kafscale.commands.config_options import ConfigOptions
from kafscale.commands.export_options import ExportOptions
from kafscale.commands.export_rounds import ExportRounds, options_by_config
from kafscale.errors import SettingError, StoreError
from kafscale.lake.batch_plan import GapPolicy
from kafscale.lake.config_topics import TopicToExport
from kafscale.lake.offset_points import LogEdge
from kafscale.lake.report import ExportReport
from kafscale.lake.table_names import Tables
from kafscale.lake.topic_export import TopicExport
from kafscale.reader.topic_state import Freshness
from kafscale.settings.broker import Settings

OPTIONS = ExportOptions(
    topic="orders",
    to="lake",
    table=None,
    dead_letter_table=None,
    catalog="local",
    catalog_properties=(),
    value_format="bytes",
    key_format="bytes",
    start=LogEdge.EARLIEST,
    backfill=None,
    freshness=Freshness.PUBLISHED,
    gap_policy=GapPolicy.FAIL,
    partition_by=(),
    properties={},
    adds_columns=True,
    target_file_bytes=1,
    max_batch_bytes=1,
    lease_ttl_sec=60,
    wait_sec=0,
    as_json=False,
    is_quiet=True,
    config_options=ConfigOptions(),
    topic_pattern=None,
    interval_sec=None,
    metrics_addr=None,
    metrics_file=None,
)
TABLES = Tables(rows="local.kafka.orders", dead_letters="local.kafka.orders_dead_letters")


class DoneExport:
    """An export that has nothing to do."""

    def run(self) -> None: ...


class Rounds:
    """Exports of one topic: each takes the next outcome, and the last one stops."""

    def __init__(self, options: ExportOptions, *outcomes: Exception | None) -> None:
        self.outcomes = list(outcomes)
        self.lines: list[str] = []
        report = ExportReport(self.lines.append, lambda: 0.0)
        self.rounds = ExportRounds(Settings(data_dir=Path("nowhere")), options, "local", self.opened, report)

    @contextlib.contextmanager
    def opened(self, options: ExportOptions, identifiers: object, _: object) -> Iterator[TopicExport]:
        assert options.topic == "orders"
        assert identifiers == (("kafka", "orders"), ("kafka", "orders_dead_letters"))
        outcome = self.outcomes.pop(0)
        if not self.outcomes:
            self.rounds.stop()
        if outcome is not None:
            raise outcome
        yield cast(TopicExport, DoneExport())


def test_one_round_without_an_interval() -> None:
    assert Rounds(OPTIONS, None).rounds.run()
    assert not Rounds(OPTIONS, StoreError("away")).rounds.run()


def test_rounds_go_on_after_a_failure_until_stopped() -> None:
    options = replace(OPTIONS, interval_sec=0.01)
    rounds = Rounds(options, None, StoreError("away"), None)
    assert rounds.rounds.run(), "the last round counts"
    assert rounds.outcomes == []
    assert rounds.lines == ["orders: FAILED: away"]
    assert not Rounds(options, None, StoreError("away")).rounds.run()


def test_an_option_that_is_not_legal_ends_it() -> None:
    with pytest.raises(SettingError):
        Rounds(replace(OPTIONS, interval_sec=0.01), SettingError("no")).rounds.run()


def test_what_a_topic_says_stands_above_the_options() -> None:
    config = IcebergConfig(
        value_format="string",
        key_format="string",
        partition_by=("topic",),
        starting_offsets="latest",
        on_expired="record",
    )
    own = options_by_config(OPTIONS, "a", TopicToExport(tables=TABLES, config=config))
    assert own == replace(
        OPTIONS,
        topic="a",
        value_format="string",
        key_format="string",
        partition_by=("topic",),
        start=LogEdge.LATEST,
        gap_policy=GapPolicy.RECORD,
    )
    assert options_by_config(OPTIONS, "orders", TopicToExport(tables=TABLES)) == OPTIONS

"""`kafscale export`: a topic into an Iceberg table, exactly once, in this process."""

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafscale.commands.config_options import ConfigOptions, config_options
from kafscale.commands.dead_letter_options import dead_letter_limit
from kafscale.commands.lake_options import table_options
from kafscale.commands.option_kinds import ADDRESS, MIB, PATTERN, PROPERTY, point, size_of
from kafscale.commands.running import echo_error, with_settings
from kafscale.commands.transactions_option import refuse_with_atomic, transactions_option
from kafscale.extras import extra_needed
from kafscale.lake.dead_letter_limit import DeadLetterLimit
from kafscale.settings.broker import Settings
from kafscale.settings.kinds import Address

if TYPE_CHECKING:
    from kafscale.lake.offset_points import OffsetPoint

_DECODED = ("json", "json-variant", "avro", "protobuf")


@click.command(context_settings={"show_default": True, "max_content_width": 110})
@functools.partial(table_options, requires_topic=False)
@config_options
@click.option(
    "--topic-pattern",
    type=PATTERN,
    help="With --topics-by-config: of the topics that are switched on only those whose whole name matches.",
)
@click.option(
    "--value-format",
    type=click.Choice(["bytes", "string", *_DECODED]),
    default="bytes",
    help="The format of values. json, avro and protobuf are decoded by the Spark job only.",
)
@click.option(
    "--key-format", type=click.Choice(["bytes", "string"]), default="bytes", help="The format of keys."
)
@click.option(
    "--starting-offsets",
    type=point("--starting-offsets"),
    default="earliest",
    help="Where the export begins if the table has nothing of the topic: earliest, latest, offsets such as "
    '{"orders": {"0": 23}} (-2 earliest, -1 latest), or a time such as 2026-11-21T08:00Z.',
)
@click.option(
    "--backfill-from",
    type=point("--backfill-from"),
    help="Export the records from this point on (as --starting-offsets) that the table lacks, instead of "
    "what is new.",
)
@click.option(
    "--backfill-until",
    type=point("--backfill-until"),
    help="Where a backfill ends, the point itself not included. [default: latest]",
)
@click.option(
    "--freshness",
    type=click.Choice(["published", "consolidated"]),
    default="published",
    help="What is new: all that is published, or what the partitions' records say, which follow at "
    "KAFSCALE_SEAL_INTERVAL_MS of the brokers and cost no reads of journals.",
)
@transactions_option
@click.option(
    "--mode",
    type=click.Choice(["append", "upsert"]),
    default="append",
    help="append: a row for each record. upsert, a row for each key, is not supported without Spark.",
)
@dead_letter_limit
@click.option(
    "--on-expired",
    type=click.Choice(["fail", "record"]),
    default="fail",
    help="If records expired before they were exported: fail, or record the gap in the table.",
)
@click.option(
    "--partition-by",
    metavar="TERMS",
    help="How a new table is partitioned, such as 'days(timestamp), topic'.",
)
@click.option(
    "--table-property", "properties", type=PROPERTY, multiple=True, help="A table property. May be repeated."
)
@click.option(
    "--add-columns/--no-add-columns",
    default=True,
    help="Whether columns that an existing table does not have are added to it, or left out.",
)
@click.option(
    "--target-file-size",
    type=size_of(MIB),
    default="512MiB",
    help="At how much data, before compression, a file is closed and another begins.",
)
@click.option(
    "--max-batch-size",
    type=size_of(MIB),
    default="512MiB",
    help="How much of the topic one commit takes, as it is stored.",
)
@click.option(
    "--lease-ttl",
    type=click.IntRange(5, 3600),
    default=60,
    metavar="SEC",
    help="In a cluster: after this long without a renewal of the lease another exporter may take over.",
)
@click.option(
    "--wait",
    type=click.FloatRange(0, 86_400),
    default=0.0,
    metavar="SEC",
    help="How long to wait for a topic that another exporter has.",
)
@click.option("--continuous", is_flag=True, help="Export what is new every --interval, until SIGTERM.")
@click.option(
    "--interval",
    type=click.FloatRange(1, 86_400),
    default=60.0,
    metavar="SEC",
    help="With --continuous: the pause.",
)
@click.option(
    "--metrics-addr", type=ADDRESS, help="Serve metrics for Prometheus here while the command runs."
)
@click.option(
    "--metrics-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write metrics to this file at the end, for the node exporter's textfile collector.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
def export(
    *,
    topic: str | None,
    to: str,
    table: str | None,
    dead_letter_table: str | None,
    catalog: str,
    catalog_properties: Sequence[str],
    value_format: str,
    key_format: str,
    starting_offsets: "OffsetPoint",
    backfill_from: "OffsetPoint | None",
    backfill_until: "OffsetPoint | None",
    freshness: str,
    is_atomic: bool,
    mode: str,
    dead_letter_limit: DeadLetterLimit,
    on_expired: str,
    partition_by: str | None,
    properties: Sequence[tuple[str, str]],
    add_columns: bool,
    target_file_size: int,
    max_batch_size: int,
    lease_ttl: int,
    wait: float,
    continuous: bool,
    interval: float,
    metrics_addr: Address | None,
    metrics_file: Path | None,
    as_json: bool,
    quiet: bool,
    config_options: ConfigOptions,
    topic_pattern: re.Pattern[str] | None,
) -> None:
    """Export topics into Iceberg tables, straight from the object store, exactly once, without Spark.

    \b
    kafscale export orders --to ./lake

    It takes one topic, or with --topics-by-config all that are switched on. It is for topics that one process can
    take; the Spark job (python -m spark_jobs.export) does the same for larger ones, on the same tables, in turns with
    this one. Each run continues where the last commit to the table ended, and ends when the table has all records
    that were published when the run began.

    The stores are those that the broker's settings name. It needs the extra `iceberg`: pip install
    'kafscale[iceberg]'. docs/export-without-spark.md explains it. Exit status: 0 exported, 1 not, 2 an option or a
    setting is not legal.
    """
    if value_format in _DECODED:
        raise click.UsageError(
            f"--value-format {value_format} is not supported without Spark; legal are bytes and string. The Spark "
            f"job decodes it: python -m spark_jobs.export --topic {topic} --value-format {value_format} ..."
        )
    if mode == "upsert":
        raise click.UsageError(
            "--mode upsert is not supported without Spark; legal is append. The Spark job makes tables with one row "
            f"for each key: python -m spark_jobs.export --topic {topic} --mode upsert ..."
        )
    if is_atomic:
        refuse_with_atomic(
            {
                "--backfill-from": backfill_from is not None,
                "--freshness consolidated": freshness != "published",
            }
        )
    # Imported here so that commands of other names, and `--help`, do not load what reads topics.
    from kafscale.commands.export_options import ExportOptions
    from kafscale.lake.batch_plan import GapPolicy
    from kafscale.lake.layout_terms import split_terms
    from kafscale.lake.offset_points import LogEdge
    from kafscale.reader.topic_state import Freshness

    backfill = None
    if backfill_from is not None:
        backfill = (backfill_from, backfill_until or LogEdge.LATEST)
    elif backfill_until is not None:
        raise click.UsageError("--backfill-until is of no use without --backfill-from")
    _check_topics(topic, topic_pattern, config_options)
    if backfill is not None and continuous:
        raise click.UsageError("--continuous is of no use with a backfill, which ends")
    options = ExportOptions(
        topic=topic or "",
        to=to,
        table=table,
        dead_letter_table=dead_letter_table,
        catalog=catalog,
        catalog_properties=catalog_properties,
        value_format=value_format,
        key_format=key_format,
        start=starting_offsets,
        backfill=backfill,
        freshness=Freshness(freshness),
        gap_policy=GapPolicy(on_expired),
        dead_letter_limit=dead_letter_limit,
        partition_by=split_terms(partition_by or ""),
        properties=dict(properties),
        adds_columns=add_columns,
        target_file_bytes=target_file_size,
        max_batch_bytes=max_batch_size,
        lease_ttl_sec=lease_ttl,
        wait_sec=wait,
        as_json=as_json,
        is_quiet=quiet,
        config_options=config_options,
        topic_pattern=topic_pattern,
        is_atomic=is_atomic,
        interval_sec=interval if continuous else None,
        metrics_addr=metrics_addr,
        metrics_file=metrics_file,
    )

    def start(settings: Settings) -> int:
        with extra_needed("iceberg", "kafscale export"):
            from kafscale.commands.export import run

        return run(settings, options, click.echo, echo_error)

    with_settings(start)


def _check_topics(topic: str | None, pattern: re.Pattern[str] | None, configs: ConfigOptions) -> None:
    """Raise click's error, which ends the command with status 2, unless the options choose topics."""
    if topic is None and not configs.by_config:
        raise click.UsageError("no topic is named: give one, or --topics-by-config")
    if pattern is not None and (topic is not None or not configs.by_config):
        raise click.UsageError("--topic-pattern is for --topics-by-config without a topic")

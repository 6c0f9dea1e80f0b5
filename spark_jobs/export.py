"""`python -m spark_jobs.export`, also under spark-submit: exports topics into Iceberg tables, exactly once."""

import re
from collections.abc import Sequence
from pathlib import Path

import click

from kafscale.commands.config_options import ConfigOptions, config_options
from kafscale.commands.dead_letter_options import dead_letter_limit
from kafscale.commands.option_kinds import ADDRESS, MIB, PATTERN, PROPERTY, point, size_of
from kafscale.commands.transactions_option import refuse_with_atomic, transactions_option
from kafscale.extras import extra_needed
from kafscale.lake.batch_plan import GapPolicy
from kafscale.lake.dead_letter_limit import DeadLetterLimit
from kafscale.lake.export_mode import ExportMode
from kafscale.lake.layout_terms import split_terms
from kafscale.lake.offset_points import LogEdge, OffsetPoint
from kafscale.lake.routes import Routes
from kafscale.reader.topic_state import Freshness
from kafscale.settings.broker import Settings
from kafscale.settings.kinds import Address
from spark_jobs.cli_options import (
    EXIT_FAILED,
    SparkOptions,
    catalog_options,
    require_topics,
    run_job,
    store_options,
)
from spark_jobs.decoding.options import WITH_FIELDS, ValueOptions
from spark_jobs.job.export_options import ExportCommand
from spark_jobs.mode_options import mode_options
from spark_jobs.registry_options import RegistryOptions, registry_options
from spark_jobs.route_options import route_options
from spark_jobs.value_options import value_options


@click.command(context_settings={"show_default": True, "max_content_width": 110})
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic to export. May be repeated.")
@click.option(
    "--topic-pattern",
    type=PATTERN,
    help="Export every topic whose whole name matches, found before each round.",
)
@config_options
@click.option(
    "--table",
    required=True,
    metavar="NAME",
    help="The table: catalog.namespace.table. With {topic} in it, it is a rule for many topics, such as "
    "local.kafka.{topic}, in which the dots of a topic's name become _. It is created if it is missing.",
)
@click.option(
    "--dead-letter-table",
    default="{table}_dead_letters",
    metavar="NAME",
    help="The table for values that do not decode; created with the first one. {table} and {topic} stand for "
    "theirs.",
)
@store_options
@catalog_options
@value_options
@registry_options
@route_options
@mode_options
@transactions_option
@dead_letter_limit
@click.option(
    "--replay-dead-letters",
    is_flag=True,
    help="Export nothing new: make rows of the dead letters that decode with the options as they are now, and delete "
    "them from the dead-letter table.",
)
@click.option(
    "--flatten",
    is_flag=True,
    help="Make columns of the fields of values, and put what Kafka knows of a record into one column _kafka: topic, "
    "partition, offset, timestamp, timestampType, key, headers, and tombstone for a null value.",
)
@click.option(
    "--starting-offsets",
    type=point("--starting-offsets"),
    default="earliest",
    help="Where the export of a topic begins that has none in the table: earliest, latest, offsets such as "
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
    type=click.Choice([one.value for one in Freshness]),
    default=Freshness.PUBLISHED.value,
    help="What is new: all that is published, or what the partitions' records say, which follow at "
    "KAFSCALE_SEAL_INTERVAL_MS of the brokers and cost no reads of journals.",
)
@click.option(
    "--on-expired",
    type=click.Choice([one.value for one in GapPolicy]),
    default=GapPolicy.FAIL.value,
    help="If records expired before they were exported: fail, or record the gap in the table.",
)
@click.option(
    "--partition-by",
    metavar="TERMS",
    help="How a new table is partitioned, such as 'days(timestamp), topic'.",
)
@click.option("--sort-by", metavar="TERMS", help="How a new table is sorted, such as 'key, timestamp desc'.")
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
    help="How large data files become; a commit with less than that makes one file for each task and partition.",
)
@click.option(
    "--max-batch-size",
    type=size_of(MIB),
    default="4GiB",
    help="How much of a topic one commit takes, as it is stored.",
)
@click.option(
    "--compact", is_flag=True, help="Put new and small files of the table together after the export."
)
@click.option(
    "--expire-snapshots",
    type=click.IntRange(0, 36_500),
    metavar="DAYS",
    help="Expire the table's snapshots that are older, after the export. Without it those that the table's "
    "properties do not keep.",
)
@click.option(
    "--row-ttl",
    type=click.IntRange(1, 36_500),
    metavar="DAYS",
    help="Delete rows whose timestamp is older, after the export.",
)
@click.option(
    "--maintain-every",
    type=click.FloatRange(0, 31 * 86_400),
    default=3600.0,
    metavar="SEC",
    help="With --continuous: how often --compact, --expire-snapshots and --row-ttl are done.",
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
@click.option("--metrics-addr", type=ADDRESS, help="Serve metrics for Prometheus here while the job runs.")
@click.option(
    "--metrics-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write metrics to this file at the end, for the node exporter's textfile collector.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
def main(
    *,
    topics: Sequence[str],
    topic_pattern: re.Pattern[str] | None,
    table: str,
    dead_letter_table: str,
    settings: Settings,
    spark_options: SparkOptions,
    values: ValueOptions,
    registry: RegistryOptions | None,
    routes: Routes | None,
    mode: ExportMode,
    upserts_any_topic: bool,
    is_atomic: bool,
    dead_letter_limit: DeadLetterLimit,
    replay_dead_letters: bool,
    flatten: bool,
    starting_offsets: OffsetPoint,
    backfill_from: OffsetPoint | None,
    backfill_until: OffsetPoint | None,
    freshness: str,
    on_expired: str,
    partition_by: str | None,
    sort_by: str | None,
    properties: Sequence[tuple[str, str]],
    add_columns: bool,
    target_file_size: int,
    max_batch_size: int,
    compact: bool,
    expire_snapshots: int | None,
    row_ttl: int | None,
    maintain_every: float,
    continuous: bool,
    interval: float,
    lease_ttl: int,
    wait: float,
    metrics_addr: Address | None,
    metrics_file: Path | None,
    as_json: bool,
    quiet: bool,
    config_options: ConfigOptions,
) -> None:
    """Export topics into Iceberg tables, straight from the object store, exactly once.

    Each run continues where the last commit to the table ended, and ends when the table has all records that were
    published when the run began (or consolidated, with --freshness).

    \b
    python -m spark_jobs.export --topic events --table local.db.events --warehouse DIR --data-dir DIR

    The options below or the broker's own KAFSCALE_ variables say where the topics are. Exit status: 0 if every topic
    was exported, 1 if one was not, 2 for options that are not legal.
    """
    backfill = None
    if backfill_from is not None:
        backfill = (backfill_from, backfill_until or LogEdge.LATEST)
    elif backfill_until is not None:
        raise click.UsageError("--backfill-until is of no use without --backfill-from")
    if backfill is not None and continuous:
        raise click.UsageError("--continuous is of no use with a backfill, which ends")
    if replay_dead_letters and (backfill is not None or continuous or dead_letter_limit != DeadLetterLimit()):
        raise click.UsageError(
            "--replay-dead-letters is of no use with a backfill, --continuous or --max-dead-letters: it exports "
            "nothing new, and ends"
        )
    if is_atomic:
        refuse_with_atomic(
            {
                "--backfill-from": backfill is not None,
                "--freshness consolidated": freshness == Freshness.CONSOLIDATED,
                "--mode upsert": mode is ExportMode.UPSERT,
                "--replay-dead-letters": replay_dead_letters,
                "--route-by": routes is not None,
            }
        )
    if routes is not None and config_options.by_config:
        raise click.UsageError("--route is of no use with --topics-by-config: give the topic by its name")
    if flatten and not config_options.by_config and values.format not in WITH_FIELDS:
        raise click.UsageError(
            f"--flatten is of no use with --value-format {values.format}, whose values have no fields: it needs "
            + ", ".join(sorted(WITH_FIELDS))
        )
    if not config_options.by_config:
        require_topics(topics, topic_pattern)
    command = ExportCommand(
        topics=topics,
        topic_pattern=topic_pattern,
        table=table,
        dead_letter_table=dead_letter_table,
        settings=settings,
        spark=spark_options,
        values=values,
        registry=registry,
        routes=routes,
        dead_letter_limit=dead_letter_limit,
        replays_dead_letters=replay_dead_letters,
        is_atomic=is_atomic,
        flattens=flatten,
        mode=mode,
        upserts_any_topic=upserts_any_topic,
        start=starting_offsets,
        backfill=backfill,
        freshness=Freshness(freshness),
        gap_policy=GapPolicy(on_expired),
        partition_by=split_terms(partition_by or ""),
        sort_by=split_terms(sort_by or ""),
        properties=dict(properties),
        adds_columns=add_columns,
        target_file_bytes=target_file_size,
        max_batch_bytes=max_batch_size,
        compacts=compact,
        expire_snapshots_days=expire_snapshots,
        row_ttl_days=row_ttl,
        maintenance_interval_sec=maintain_every,
        interval_sec=interval if continuous else None,
        lease_ttl_sec=lease_ttl,
        wait_sec=wait,
        metrics_addr=metrics_addr,
        metrics_file=metrics_file,
        as_json=as_json,
        is_quiet=quiet,
        config_options=config_options,
    )

    # Imported last, because it loads pyarrow and numba: --help and refusals of options answer at once.
    def run() -> bool:
        with extra_needed("spark", "python -m spark_jobs.export"):
            from spark_jobs.job.launch import run_export

        return run_export(command)

    run_job(run, exit_if_false=EXIT_FAILED)


if __name__ == "__main__":
    main()

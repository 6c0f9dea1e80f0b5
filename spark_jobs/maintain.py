"""`python -m spark_jobs.maintain`, also under spark-submit: maintains the tables of exports."""

import re
from collections.abc import Sequence

import click

from kafscale.commands.option_kinds import MIB, PATTERN, size_of
from kafscale.extras import extra_needed
from kafscale.settings.broker import Settings
from spark_jobs.cli_options import EXIT_FAILED, SparkOptions, catalog_options, run_job, store_options
from spark_jobs.maintaining.maintain_command import MaintainCommand


@click.command(context_settings={"show_default": True, "max_content_width": 110})
@click.option(
    "--table",
    required=True,
    metavar="NAME",
    help="The export's table, or its rule for many topics, which --topic or --topic-pattern then name.",
)
@click.option(
    "--dead-letter-table",
    default="{table}_dead_letters",
    metavar="NAME",
    help="The export's table of values that did not decode; maintained if it is there.",
)
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic of a rule. May be repeated.")
@click.option("--topic-pattern", type=PATTERN, help="Every topic of a rule whose whole name matches.")
@store_options
@catalog_options
@click.option(
    "--compact/--no-compact",
    default=True,
    help="Put small files together, and small manifests. Large files stay as they are.",
)
@click.option("--target-file-size", type=size_of(MIB), default="512MiB", help="How large data files become.")
@click.option(
    "--expire-snapshots",
    type=click.IntRange(0, 36_500),
    metavar="DAYS",
    show_default="by the table's properties history.expire.*",
    help="Expire snapshots that are older, but for the newest.",
)
@click.option(
    "--orphan-age",
    type=click.IntRange(1, 36_500),
    default=3,
    metavar="DAYS",
    help="Remove files in the table's folder that no snapshot names and that are older.",
)
@click.option(
    "--orphans/--no-orphans", default=True, help="Whether files that no snapshot names are removed."
)
@click.option(
    "--row-ttl",
    type=click.IntRange(1, 36_500),
    metavar="DAYS",
    help="Delete rows that are older. Off unless given.",
)
@click.option(
    "--row-ttl-column",
    metavar="NAME",
    show_default="timestamp, or _kafka.timestamp of a flat table",
    help="The column that says how old a row is; with dots a field in it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
def main(
    *,
    table: str,
    dead_letter_table: str,
    topics: Sequence[str],
    topic_pattern: re.Pattern[str] | None,
    settings: Settings,
    spark_options: SparkOptions,
    compact: bool,
    target_file_size: int,
    expire_snapshots: int | None,
    orphan_age: int,
    orphans: bool,
    row_ttl: int | None,
    row_ttl_column: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Maintain the tables of an export: put small files together, expire snapshots, remove orphans and old rows.

    It may run beside exports, at any time, on a schedule of its own: every step is a commit of Iceberg's, and none
    needs the topic. What is done depends on what there is to do; a second run does next to nothing.

    \b
    python -m spark_jobs.maintain --table local.db.events --warehouse DIR

    Exit status: 0 if every step was done, 1 if one failed, 2 for options that are not legal.
    """
    command = MaintainCommand(
        topics=topics,
        topic_pattern=topic_pattern,
        table=table,
        dead_letter_table=dead_letter_table,
        settings=settings,
        spark=spark_options,
        compacts=compact,
        target_file_bytes=target_file_size,
        snapshot_age_days=expire_snapshots,
        orphan_age_days=orphan_age if orphans else None,
        row_ttl_days=row_ttl,
        row_ttl_column=row_ttl_column,
        as_json=as_json,
        is_quiet=quiet,
    )

    # Imported last, because it loads Spark: --help and refusals of options answer at once.
    def run() -> bool:
        with extra_needed("spark", "python -m spark_jobs.maintain"):
            from spark_jobs.maintaining.launch import run_maintenance

        return run_maintenance(command)

    run_job(run, exit_if_false=EXIT_FAILED)


if __name__ == "__main__":
    main()

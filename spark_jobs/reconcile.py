"""`python -m spark_jobs.reconcile`, also under spark-submit: compares topics with their tables."""

import re
from collections.abc import Sequence

import click

from kafscale.commands.option_kinds import PATTERN
from kafscale.extras import extra_needed
from kafscale.settings.broker import Settings
from spark_jobs.cli_options import SparkOptions, catalog_options, require_topics, run_job, store_options
from spark_jobs.decoding.options import ValueOptions
from spark_jobs.reconciling.reconcile_command import DEFAULT_RANGE_SIZE, ReconcileCommand
from spark_jobs.registry_options import RegistryOptions, registry_options
from spark_jobs.value_options import value_options

EXIT_DIFFERENT = 3


@click.command(context_settings={"show_default": True, "max_content_width": 110})
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic. May be repeated.")
@click.option(
    "--topic-pattern",
    type=PATTERN,
    help="Every topic whose whole name matches.",
)
@click.option(
    "--table",
    required=True,
    metavar="NAME",
    help="The export's table, or its rule for many topics.",
)
@click.option(
    "--dead-letter-table",
    default="{table}_dead_letters",
    metavar="NAME",
    help="The export's table of values that did not decode.",
)
@store_options
@catalog_options
@value_options
@registry_options
@click.option(
    "--range-size",
    type=click.IntRange(1, 2**31 - 1),
    default=DEFAULT_RANGE_SIZE,
    metavar="OFFSETS",
    help="How many offsets are counted and hashed together.",
)
@click.option(
    "--except-column",
    "except_columns",
    multiple=True,
    metavar="NAME",
    help="Do not compare this column. May be repeated.",
)
@click.option(
    "--skip-expired", is_flag=True, help="Do not read rows of the table that the topic no longer has."
)
@click.option(
    "--all-ranges",
    is_flag=True,
    help="Show every range, also when there are many; --json always has all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print an object for programs.")
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
    range_size: int,
    except_columns: Sequence[str],
    skip_expired: bool,
    all_ranges: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Count and hash the records of topics and the rows of their tables, by partition and range of offsets.

    The records that the table should have are compared with those that the topic still has. Records that are not
    exported yet, recorded gaps, and rows whose records have expired are shown, and are no difference.

    \b
    python -m spark_jobs.reconcile --topic events --table local.db.events --warehouse DIR --data-dir DIR

    Exit status: 0 when they agree, 1 when a store or Spark failed, 2 for options that are not legal, 3 when there is
    a difference.
    """
    require_topics(topics, topic_pattern)
    command = ReconcileCommand(
        topics=topics,
        topic_pattern=topic_pattern,
        table=table,
        dead_letter_table=dead_letter_table,
        settings=settings,
        spark=spark_options,
        values=values,
        registry=registry,
        range_size=range_size,
        except_columns=except_columns,
        skips_expired=skip_expired,
        shows_all_ranges=all_ranges,
        as_json=as_json,
        is_quiet=quiet,
    )

    # Imported last, because it loads pyarrow and numba: --help and refusals of options answer at once.
    def run() -> bool:
        with extra_needed("spark", "python -m spark_jobs.reconcile"):
            from spark_jobs.reconciling.launch import run_reconcile

        return run_reconcile(command)

    run_job(run, exit_if_false=EXIT_DIFFERENT)


if __name__ == "__main__":
    main()

"""`kafscale reconcile`: a topic compared with its Iceberg tables, in this process."""

from collections.abc import Sequence
from dataclasses import dataclass

import click

from kafscale.commands.lake_options import table_options
from kafscale.commands.running import echo_error, with_settings
from kafscale.extras import extra_needed
from kafscale.settings.broker import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileArguments:
    """The parsed command line; docs/export-without-spark.md describes it."""

    topic: str
    to: str
    table: str | None
    dead_letter_table: str | None
    catalog: str
    catalog_properties: Sequence[str]
    range_size: int
    except_columns: Sequence[str]
    skips_expired: bool
    shows_all_ranges: bool
    as_json: bool
    is_quiet: bool


@click.command(context_settings={"show_default": True, "max_content_width": 110})
@table_options
@click.option(
    "--range-size",
    type=click.IntRange(1, 2**31 - 1),
    default=100_000,
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
    "--skip-expired", is_flag=True, help="Leave out rows of the table that the topic no longer has."
)
@click.option(
    "--all-ranges",
    is_flag=True,
    help="Show every range, also when there are many; --json always has all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print an object for programs.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
def reconcile(
    *,
    topic: str,
    to: str,
    table: str | None,
    dead_letter_table: str | None,
    catalog: str,
    catalog_properties: Sequence[str],
    range_size: int,
    except_columns: Sequence[str],
    skip_expired: bool,
    all_ranges: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare a topic with its Iceberg table: count and hash both, by partition and range of offsets, without Spark.

    \b
    kafscale reconcile orders --to ./lake

    It is python -m spark_jobs.reconcile for tables whose keys and values are bytes or text, whichever exporter wrote
    them. It writes nothing, and may run while topic and table grow.

    The stores are those that the broker's settings name. It needs the extra `iceberg`: pip install
    'kafscale[iceberg]'. Exit status: 0 they agree, 1 a store or a catalog failed, 2 an option or a setting is not
    legal, 3 there is a difference.
    """
    arguments = ReconcileArguments(
        topic=topic,
        to=to,
        table=table,
        dead_letter_table=dead_letter_table,
        catalog=catalog,
        catalog_properties=catalog_properties,
        range_size=range_size,
        except_columns=except_columns,
        skips_expired=skip_expired,
        shows_all_ranges=all_ranges,
        as_json=as_json,
        is_quiet=quiet,
    )

    def start(settings: Settings) -> int:
        with extra_needed("iceberg", "kafscale reconcile"):
            from kafscale.commands.reconcile import run

        return run(settings, arguments, click.echo, echo_error)

    with_settings(start)

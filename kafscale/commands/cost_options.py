"""The command line of `kafscale cost`, which loads nothing else before it is used."""

import os
import sys
from typing import Final

import click

_HELP: Final = """\
Show what a cluster's requests and storage cost: now, per month, by topic, and at other flush intervals and budgets.

\b
SOURCE is the metrics of one broker:
  http://host:9093/metrics   a broker's KAFSCALE_METRICS_ADDR; also host:9093
  PATH                       a file with what it answered

Name each broker of the cluster. Without --metrics it is the one at KAFSCALE_METRICS_ADDR on this machine. Brokers
are read twice, --seconds apart, and a month costs what it would at the rates between. A file is read once, and its
rates are those since its broker's start, unless --before names an earlier one of the same broker. Files are as old as
their time of modification says.

Requests are those that brokers send, retries and parts of uploads included, at the prices that they export
(KAFSCALE_PRICE_*). Storage is what topics' partitions have published. docs/cost.md says what is not in it.

\b
The cost at another flush interval, or another KAFSCALE_FLUSHES_PER_SEC, is an estimate.
A flush is one PUT for all partitions of a broker. With B batches a second, the interval T and the budget R a broker
makes as many flushes a second as the largest of: R, but not more than B; 1 / (T + 1/B); bytes a second / 8 MiB.
What is measured changes as these do: PUTs of entries, and the GETs of brokers that read them for consumers. All
else stays. Expect the result to be right to a tenth, where PUTs are fast beside the interval.

Exit status: 0 done, 1 metrics cannot be read, 2 an option is not legal.
"""


@click.command(help=_HELP)
@click.option(
    "--metrics", "sources", multiple=True, metavar="SOURCE", help="The metrics of a broker. May be repeated."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, 86_400),
    default=30,
    show_default=True,
    metavar="N",
    help="How long to measure; 0 takes the average since each broker's start.",
)
@click.option(
    "--before",
    "earlier",
    multiple=True,
    metavar="FILE",
    help="An earlier scrape of a broker. May be repeated.",
)
@click.option(
    "--flush-interval-ms",
    "intervals_ms",
    type=click.IntRange(1, 3_600_000),
    multiple=True,
    metavar="N",
    help="Estimate the cost at this interval, instead of some usual ones. May be repeated.",
)
@click.option(
    "--flushes-per-sec",
    "budgets",
    type=click.FloatRange(0, 1_000_000),
    multiple=True,
    metavar="N",
    help="Estimate the cost with this KAFSCALE_FLUSHES_PER_SEC. May be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of tables.")
def cost(
    sources: tuple[str, ...],
    seconds: float,
    earlier: tuple[str, ...],
    intervals_ms: tuple[int, ...],
    budgets: tuple[float, ...],
    as_json: bool,
) -> None:
    """Print the report, and exit with its status."""
    # Imported here so that `--help` answers without loading what reads the metrics.
    from kafscale.commands.cost import CostOptions, run

    sys.exit(run(CostOptions(sources, seconds, earlier, intervals_ms, budgets, as_json), os.environ))

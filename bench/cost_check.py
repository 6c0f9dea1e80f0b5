"""`python -m bench.cost_check`: fails if the broker's CPU, as a ratio to the ceiling's, is clearly worse.

With `--record` it stores its results for later runs to compare with.
"""

import sys
import tempfile
from pathlib import Path

import click

from bench.cost_ratios import (
    ENOUGH_ROUNDS,
    Recorded,
    Verdict,
    decode_recorded,
    encode_recorded,
    report,
    verdict,
)
from bench.cost_rounds import cost_rounds

RECORDED_PATH = Path(__file__).with_name("recorded_ratios.json")


def recorded() -> Recorded:
    """The ratios in the file."""
    return decode_recorded(RECORDED_PATH.read_text())


def check(work_dir: Path, held: Recorded) -> tuple[Verdict, str]:
    """Measure until the result is clear. Returns the result, and its report."""
    with cost_rounds(work_dir) as rounds:
        while (found := verdict(rounds.costs, held)) is Verdict.NOT_CLEAR:
            rounds.measure()
        return found, report(rounds.costs, held)


def record(work_dir: Path) -> tuple[str, str]:
    """Measure twice as long as a check needs. Returns the file's text, and its report."""
    with cost_rounds(work_dir) as rounds:
        for _ in range(2 * ENOUGH_ROUNDS):
            rounds.measure()
        return encode_recorded(rounds.costs), report(rounds.costs, {})


@click.command(help="Compare the broker's CPU, as a ratio to the no-op ceiling's, with the recorded ratios.")
@click.option("--record", "records", is_flag=True, help="Record the ratios instead.")
@click.option(
    "--work-dir",
    default=Path(tempfile.gettempdir()),
    show_default=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
    help="Where the data folders are created; should be a real disk.",
)
def main(records: bool, work_dir: Path) -> None:
    if records:
        text, seen = record(work_dir)
        RECORDED_PATH.write_text(text)
        click.echo(f"{seen}\n{RECORDED_PATH}")
        return
    found, seen = check(work_dir, recorded())
    click.echo(f"{seen}\n{found.value}")
    sys.exit(found is Verdict.WORSE)


if __name__ == "__main__":
    main()

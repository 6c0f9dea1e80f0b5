"""The options of `kafscale cat`."""

import os
import re
from datetime import UTC, datetime, timedelta

import click

from kafscale.commands.running import with_settings
from kafscale.errors import SettingError
from kafscale.settings.broker import Settings

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@click.command()
@click.argument("topic")
@click.option(
    "--source",
    metavar="FOLDER|URL",
    help="A broker's data folder, or s3://bucket/namespace. By default what the settings name.",
)
@click.option(
    "--format",
    "line_format",
    type=click.Choice(["json", "key=value", "value"]),
    default="json",
    show_default=True,
    help="What is printed of a record, on one line.",
)
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Only this one. May be repeated.",
)
@click.option(
    "--start",
    metavar="OFFSET|TIME",
    help="Begin there: an offset, earliest, latest, or a time with its zone.",
)
@click.option(
    "--end", metavar="OFFSET|TIME", help="End before this offset, or before the first record of that time."
)
@click.option("--since", metavar="AGE", help="Begin with the first record of the last 30s, 5m, 2h, 7d.")
@click.option(
    "--on-expired",
    type=click.Choice(["error", "earliest"]),
    default="error",
    show_default=True,
    help="For a start that expired: fail, or begin with what is there.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="Print what is committed, or also records of open and aborted transactions.",
)
@click.option("--key", metavar="TEXT", help="Only records with exactly this key.")
@click.option(
    "--grep", metavar="REGEX", help="Only records whose value has a match of this regular expression."
)
@click.option("--max-records", type=click.IntRange(1), metavar="N", help="Stop when so many are printed.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is published, until Ctrl-C.")
def cat(
    topic: str,
    source: str | None,
    line_format: str,
    partitions: tuple[int, ...],
    start: str | None,
    end: str | None,
    since: str | None,
    on_expired: str,
    isolation_level: str,
    key: str | None,
    grep: str | None,
    max_records: int | None,
    follow: bool,
) -> None:
    """Print the records of TOPIC, straight from the stores, with no broker at hand.

    Partition after partition, each in the order of its offsets: all that is published when it begins, and with
    --follow what comes after it.

    \b
    kafscale cat orders --source ./kafscale-data --since 10m
    kafscale cat orders --format key=value --partition 0 --start 1000 --max-records 5
    kafscale cat orders --follow --start latest | jq .value

    Keys and values that are not UTF-8 are in "keyBase64" and "valueBase64" of the JSON object instead of "key" and
    "value". The other formats print the bytes as they are, on a terminal as `kafscale dump` does, and null as null.
    docs/read-topics.md explains the rest. Exit status: 0 done, 1 a store failed or records are damaged or gone,
    2 an option, a setting or the topic's name is not legal or unknown.
    """
    # Imported here so that `--help` answers without loading the stores.
    from kafscale.commands.cat import CatOptions, run_cat
    from kafscale.commands.cat_lines import LineFormat
    from kafscale.reader.requests import request_of
    from kafscale.reader.topic_state import UnknownTopicError

    def run(_: Settings) -> int:
        if follow and end is not None:
            raise SettingError("--end is not legal with --follow, which has no end")
        if start is not None and since is not None:
            raise SettingError("--start and --since contradict each other: give one of them")
        options = CatOptions(
            source=source,
            request=request_of(
                topic,
                start=_since(since) if since is not None else _offset_or_text(start),
                end=_offset_or_text(end),
                partitions=partitions or None,
                on_expired=on_expired,
                isolation_level=isolation_level,
            ),
            line_format=LineFormat(line_format),
            key=None if key is None else key.encode("utf-8", "surrogateescape"),
            grep=None if grep is None else _pattern(grep),
            max_records=max_records,
            follow=follow,
        )
        try:
            return run_cat(options, os.environ)
        except UnknownTopicError as problem:
            raise SettingError(str(problem)) from problem

    with_settings(run)


def _offset_or_text(text: str | None) -> int | str | None:
    return int(text) if text is not None and re.fullmatch(r"-?[0-9]{1,20}", text) else text


def _since(text: str) -> datetime:
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if found is None:
        raise SettingError(
            f"--since {text!r} is not legal: it must be a number with s, m, h or d, such as 5m"
        )
    seconds = int(found[1]) * _UNITS[found[2]]
    try:
        return datetime.now(UTC) - timedelta(seconds=seconds)
    except OverflowError:
        raise SettingError(f"--since {text!r} is not legal: there is no time so long ago") from None


def _pattern(text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode("utf-8", "surrogateescape"))
    except re.error as problem:
        raise SettingError(
            f"--grep {text!r} is not legal: it must be a regular expression of Python's ({problem})"
        ) from None

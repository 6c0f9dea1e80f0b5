"""Command line options for the mode of an export's tables."""

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from kafscale.lake.export_mode import ExportMode

Command = TypeVar("Command", bound=Callable[..., Any])


def mode_options(command: Command) -> Command:
    """The command gets them as `mode` and `upserts_any_topic`. Options that an upsert cannot have are refused."""

    @functools.wraps(command)
    def with_mode(*arguments: Any, mode: str, upsert_any_topic: bool, **parameters: Any) -> Any:
        if mode == ExportMode.UPSERT:
            for name, (option, why) in _NOT_WITH_UPSERT.items():
                if parameters[name]:
                    raise click.UsageError(f"{option} is not legal with --mode upsert: {why}")
        elif upsert_any_topic:
            raise click.UsageError("--upsert-any-topic is of no use without --mode upsert")
        return command(*arguments, mode=ExportMode(mode), upserts_any_topic=upsert_any_topic, **parameters)

    decorated: Any = with_mode
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


_NOT_WITH_UPSERT: Final = {
    "backfill_from": ("--backfill-from", "older records would take the place of newer ones"),
    "replay_dead_letters": ("--replay-dead-letters", "older records would take the place of newer ones"),
    "routes": ("--route-by", "a key could have rows in several tables"),
}

_OPTIONS: Final = (
    click.option(
        "--mode",
        type=click.Choice([one.value for one in ExportMode]),
        default=ExportMode.APPEND.value,
        show_default=True,
        help="append: a row for each record. upsert: a row for each key, of its newest record; a record without a "
        "value deletes it. A table keeps its mode.",
    ),
    click.option(
        "--upsert-any-topic",
        is_flag=True,
        help="With --mode upsert: also a topic without compact in its cleanup.policy, whose old keys may expire.",
    ),
)

"""The option that limits dead letters, as both exports have it."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kafscale.errors import SettingError
from kafscale.lake.dead_letter_limit import OPTION, parse_limit

Command = TypeVar("Command", bound=Callable[..., Any])


def dead_letter_limit(command: Command) -> Command:
    """The command gets it as `dead_letter_limit`, a `DeadLetterLimit`."""

    @functools.wraps(command)
    def with_limit(*arguments: Any, max_dead_letters: tuple[str, ...], **parameters: Any) -> Any:
        try:
            limit = parse_limit(max_dead_letters)
        except SettingError as problem:
            raise click.UsageError(str(problem)) from None
        return command(*arguments, dead_letter_limit=limit, **parameters)

    option = click.option(
        OPTION,
        multiple=True,
        metavar="N|P%",
        help="Fail before a commit that would bring the topic's dead letters in this run above N, or those of the "
        "commit above a share of its records. May be given twice, once for each. [default: any number]",
    )
    return option(with_limit)  # type: ignore[return-value]

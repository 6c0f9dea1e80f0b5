"""Options of both exports by which they follow topics' configs (`kafscale.iceberg.*`)."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOptions:
    """`by_config`: topics' configs are followed. `namespaces`: more of them in which topics may have their tables."""

    by_config: bool = False
    namespaces: Sequence[str] = ()


_OPTIONS: Final = (
    click.option(
        "--topics-by-config",
        "by_config",
        is_flag=True,
        help="Export every topic whose config kafscale.iceberg.enable is true, with what its kafscale.iceberg.* "
        "configs say above the options here. If topics or a pattern are given, too, of these only.",
    ),
    click.option(
        "--table-namespace",
        "namespaces",
        multiple=True,
        metavar="NAMESPACE",
        help="With --topics-by-config: a namespace besides that of --table in which topics may have their tables. "
        "May be repeated.",
    ),
)


def config_options(command: Command) -> Command:
    """The command gets them as `config_options`, a `ConfigOptions`."""

    @functools.wraps(command)
    def with_configs(*arguments: Any, by_config: bool, namespaces: Sequence[str], **parameters: Any) -> Any:
        if namespaces and not by_config:
            raise click.UsageError("--table-namespace is of no use without --topics-by-config")
        options = ConfigOptions(by_config=by_config, namespaces=tuple(namespaces))
        return command(*arguments, config_options=options, **parameters)

    decorated: Any = with_configs
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]

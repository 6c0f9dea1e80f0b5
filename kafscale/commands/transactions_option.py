"""The option of both exports that says where commits cut transactions."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from kafscale.cluster.iceberg_configs import TransactionMode

Command = TypeVar("Command", bound=Callable[..., Any])


_OPTION: Final = click.option(
    "--transactions",
    type=click.Choice([one.value for one in TransactionMode]),
    default=TransactionMode.COMMITTED.value,
    show_default=True,
    help="committed: what is committed, partition by partition. atomic: the commits of all topics are of one cut, in "
    "which each transaction is whole or not at all; it reads what is new twice.",
)


def transactions_option(command: Command) -> Command:
    """The command gets it as `is_atomic`."""

    @functools.wraps(command)
    def with_mode(*arguments: Any, transactions: str, **parameters: Any) -> Any:
        return command(*arguments, is_atomic=transactions == TransactionMode.ATOMIC, **parameters)

    decorated: Any = _OPTION(with_mode)
    return decorated  # type: ignore[no-any-return]


def refuse_with_atomic(given: Mapping[str, bool]) -> None:
    """Raise click's error if one of these options is given: what it brings is not of a cut."""
    for option, is_given in given.items():
        if is_given:
            raise click.UsageError(f"{option} is not legal with --transactions atomic: {_REASONS[option]}")


_REASONS: Final = {
    "--backfill-from": "a backfill has a range of its own",
    "--freshness consolidated": "partitions' records are not of one time",
    "--mode upsert": "what a cut leaves out would come after newer records of its keys",
    "--replay-dead-letters": "it exports nothing new",
    "--route-by": "the tables of routes are committed to before the topic's own",
}

"""`kafscale users`: the users that brokers let in, before the first broker runs and beside running ones."""

import sys
from typing import TYPE_CHECKING, Final

import click

from kafscale.commands.running import EXIT_SETTINGS, echo_error, fail, with_settings
from kafscale.errors import SettingError
from kafscale.formats.user_record import (
    MAX_ITERATIONS,
    MAX_NAME_CHARACTERS,
    MECHANISMS_BY_NAME,
    MIN_ITERATIONS,
    ScramMechanism,
)
from kafscale.settings.broker import Settings

if TYPE_CHECKING:
    from kafscale.commands.users_store import UsersCommand

MAX_PASSWORD_BYTES: Final = 1024
_MECHANISM = click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(list(MECHANISMS_BY_NAME)),
    help="Only this one; may be repeated. Default: all of them.",
)


@click.group()
def users() -> None:
    """The users that brokers let in by SASL: add them, list them, remove them.

    The metadata store is the one that the broker's settings name. etcd takes changes at any time, and running brokers
    know them at once. The embedded store serves one process at a time: add the first user before the broker starts,
    and the others with `kafka-configs.sh --entity-type users`. A user is kept as SCRAM credentials, never with the
    password. docs/security.md explains SASL. Exit status: 0 done, 1 the store failed, 2 a setting or an option is not
    legal.
    """


@users.command("add")
@click.argument("name")
@click.option(
    "--password-stdin",
    is_flag=True,
    help="Read the password from standard input: one line, without its end.",
)
@_MECHANISM
@click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    default=MIN_ITERATIONS,
    show_default=True,
    metavar="N",
    help=f"How often the password is hashed, {MIN_ITERATIONS} to {MAX_ITERATIONS}.",
)
def add(name: str, password_stdin: bool, mechanisms: tuple[str, ...], iterations: int) -> None:
    """Add a user, or give a user another password.

    \b
    printf %s "$PASSWORD" | kafscale users add alice --password-stdin

    Without --password-stdin the password is asked for, twice.
    """
    try:
        _check_name(name)
        password = _password(password_stdin)
    except SettingError as problem:
        fail(problem, EXIT_SETTINGS)
    chosen = [MECHANISMS_BY_NAME[one] for one in mechanisms] or list(ScramMechanism)
    with_settings(lambda settings: _command(settings).add(name, password, chosen, iterations))


@users.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_users(as_json: bool) -> None:
    """List the users, with their mechanisms and iterations. Only reads, also beside a running broker."""

    with_settings(lambda settings: _command(settings).list_all(as_json=as_json))


@users.command("remove")
@click.argument("name")
@_MECHANISM
def remove(name: str, mechanisms: tuple[str, ...]) -> None:
    """Remove a user, or only its credentials of --mechanism. Open connections go on until they end."""
    try:
        _check_name(name)
    except SettingError as problem:
        fail(problem, EXIT_SETTINGS)
    chosen = [MECHANISMS_BY_NAME[one] for one in mechanisms]
    with_settings(lambda settings: _command(settings).remove(name, chosen))


def _check_name(name: str) -> None:
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS:
        raise SettingError(f"a user's name must have 1 to {MAX_NAME_CHARACTERS} characters")


def _password(from_stdin: bool) -> bytes:
    """The password in UTF-8. Raises `SettingError`."""
    if from_stdin:
        data = sys.stdin.buffer.read(MAX_PASSWORD_BYTES + 3)
        for end in (b"\r\n", b"\n"):
            if data.endswith(end):
                data = data[: -len(end)]
                break
    elif sys.stdin.isatty():
        data = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True).encode()
    else:
        raise SettingError(
            "--password-stdin is needed: standard input is no terminal to ask for the password"
        )
    try:
        data.decode()
    except UnicodeDecodeError:
        raise SettingError("the password is not UTF-8") from None
    if not 1 <= len(data) <= MAX_PASSWORD_BYTES or b"\0" in data or b"\n" in data:
        raise SettingError(f"the password must be one line of 1 to {MAX_PASSWORD_BYTES} bytes")
    return data


def _command(settings: Settings) -> "UsersCommand":
    # Imported here so that `--help` and a bad option answer without loading the stores.
    from kafscale.commands.users_store import UsersCommand

    return UsersCommand(settings, output=click.echo, errors=echo_error)

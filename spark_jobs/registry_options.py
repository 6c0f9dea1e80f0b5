"""Command line options for a schema registry, and their values."""

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kafscale.errors import SettingError

Command = TypeVar("Command", bound=Callable[..., Any])

_FROM_ENVIRONMENT: Final = "env:"


class OnUnknownSchema(StrEnum):
    """The treatment of values whose schema id the registry does not have."""

    DEAD_LETTER = "dead-letter"
    STOP = "stop"
    WAIT = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOptions:
    """Where a registry is, as whom to ask, and what for. `subject`: with `{topic}` and `{type}` in it."""

    url: str
    user_info: str | None = field(repr=False)
    token: str | None = field(repr=False)
    ca_file: Path | None
    timeout_sec: float
    subject: str | None
    on_unknown: OnUnknownSchema
    wait_sec: float

    def subject_of(self, topic: str, type_name: str | None = None) -> str:
        """The subject of the topic's values, or of those of one type."""
        template = self.subject or ("{topic}-value" if type_name is None else "{topic}-{type}")
        return template.replace("{topic}", topic).replace("{type}", type_name or "value")


def secret(option: str, text: str | None, environment: Mapping[str, str]) -> str | None:
    """The secret that the option names. Raises `SettingError`, which never has the text."""
    if text is None:
        return None
    variable = text.removeprefix(_FROM_ENVIRONMENT)
    if variable == text or not variable:
        raise SettingError(
            f"{option} is not legal: it must be env:VARIABLE, because other users can see command lines"
        )
    if not environment.get(variable):
        raise SettingError(f"{option} names the variable {variable!r}, which is not set")
    return environment[variable]


def registry_options(command: Command) -> Command:
    """The command gets them as `registry`, a `RegistryOptions`, or None without `--schema-registry`."""

    @functools.wraps(command)
    def with_registry(
        *arguments: Any,
        schema_registry: str | None,
        schema_registry_user_info: str | None,
        schema_registry_token: str | None,
        schema_registry_ca: Path | None,
        schema_registry_timeout: float,
        schema_subject: str | None,
        on_unknown_schema: str,
        schema_wait: float,
        **parameters: Any,
    ) -> Any:
        registry = None
        if schema_registry is not None:
            try:
                registry = RegistryOptions(
                    url=schema_registry,
                    user_info=secret("--schema-registry-user-info", schema_registry_user_info, os.environ),
                    token=secret("--schema-registry-token", schema_registry_token, os.environ),
                    ca_file=schema_registry_ca,
                    timeout_sec=schema_registry_timeout,
                    subject=schema_subject,
                    on_unknown=OnUnknownSchema(on_unknown_schema),
                    wait_sec=schema_wait,
                )
            except SettingError as problem:
                raise click.UsageError(str(problem)) from None
        elif schema_subject or schema_registry_user_info or schema_registry_token or schema_registry_ca:
            raise click.UsageError(
                "--schema-subject and --schema-registry-... are of no use without --schema-registry"
            )
        return command(*arguments, registry=registry, **parameters)

    decorated: Any = with_registry
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


_OPTIONS: Final = (
    click.option(
        "--schema-registry",
        metavar="URL",
        help="A schema registry of Confluent's API: https://registry.example.com:8081, or .../apis/ccompat/v7 of "
        "Apicurio. Schemas by id come from there, once; then they are in the object store.",
    ),
    click.option(
        "--schema-registry-user-info",
        metavar="env:VARIABLE",
        help="The variable with USER:PASSWORD for the registry.",
    ),
    click.option(
        "--schema-registry-token",
        metavar="env:VARIABLE",
        help="The variable with a bearer token for the registry.",
    ),
    click.option(
        "--schema-registry-ca",
        type=click.Path(dir_okay=False, path_type=Path),
        help="The CA certificates of the registry, in PEM, instead of the system's.",
    ),
    click.option(
        "--schema-registry-timeout",
        type=click.FloatRange(1, 600),
        default=30.0,
        show_default=True,
        metavar="SEC",
        help="How long an answer of the registry may take, attempts included.",
    ),
    click.option(
        "--schema-subject",
        metavar="NAME",
        show_default="{topic}-value, or {topic}-{type} with --route-by type",
        help="The subject whose newest schema says which columns there are, unless a file does. {topic} and {type} "
        "stand for theirs.",
    ),
    click.option(
        "--on-unknown-schema",
        type=click.Choice([one.value for one in OnUnknownSchema]),
        default=OnUnknownSchema.DEAD_LETTER.value,
        show_default=True,
        help="If the registry does not have a value's schema id: dead letters, stop, or wait until it has.",
    ),
    click.option(
        "--schema-wait",
        type=click.FloatRange(1, 86_400),
        default=600.0,
        show_default=True,
        metavar="SEC",
        help="With --on-unknown-schema wait: how long.",
    ),
)

"""Types of command line options, each with its own words for its legal values."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from kafscale.errors import SettingError
from kafscale.settings.kinds import Address, address, size

if TYPE_CHECKING:
    from kafscale.lake.offset_points import OffsetPoint

MIB = 1024 * 1024


class Parsed(click.ParamType):  # type: ignore[type-arg]
    """An option whose text a function converts, or refuses with `ValueError` or `SettingError`."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See click."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except (ValueError, SettingError) as problem:
            self.fail(str(problem), param, ctx)


def size_of(least: int) -> Parsed:
    """Bytes, with a unit or without."""
    kind = size(least, 2**50)

    def parse(text: str) -> int:
        try:
            return int(kind.parse(text))
        except ValueError:
            raise ValueError(f"{text!r} is not legal: it must be {kind.legal}") from None

    return Parsed("SIZE", parse)


def point(option: str) -> Parsed:
    """A point in a topic; see `topic_points`."""

    def parse(text: str) -> "OffsetPoint":
        # Imported here: it loads what reads topics, which a command of another name does not need.
        from kafscale.lake.topic_points import parse_point

        return parse_point(option, text)

    return Parsed("POINT", parse)


def _address(text: str) -> Address:
    kind = address()
    try:
        parsed: Address = kind.parse(text)
    except ValueError:
        raise ValueError(f"{text!r} is not legal: it must be {kind.legal}") from None
    return parsed


def _property(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key.strip() and equals):
        raise ValueError(f"{text!r} is not legal: it must be KEY=VALUE")
    return key.strip(), value


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as problem:
        raise ValueError(f"{text!r} is not legal: it must be a regular expression ({problem})") from None


ADDRESS = Parsed("HOST:PORT", _address)
PROPERTY = Parsed("KEY=VALUE", _property)
PATTERN = Parsed("REGEX", _pattern)

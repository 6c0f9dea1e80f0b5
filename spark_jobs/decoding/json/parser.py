"""Strict parser of JSON text: nothing follows the value, numbers keep their text, repeated names are reported."""

import json
import re
from collections import Counter

from spark_jobs.decoding.problems import UndecodableError

MAX_DEPTH = 200
_EXACT_DIGITS = 400  # int() of a long text takes quadratic time
_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


class Number(str):
    """The text of a number with fraction or exponent, or of NaN, Infinity or -Infinity."""

    __slots__ = ()


class AmbiguousObject(dict[str, object]):
    """An object in which `names` occur more than once."""

    __slots__ = ("names",)

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        self.names = _repeated([key for key, _ in pairs])


def parse(data: bytes) -> object:
    """The value in `data`: None, bool, int, Number, str, list, dict or AmbiguousObject.

    Raises `UndecodableError` for what is not one JSON text in UTF-8, and beyond `MAX_DEPTH` levels. Python's
    parser also takes NaN, Infinity and -Infinity, as Spark's does.
    """
    if not data:
        raise UndecodableError("is empty, and no JSON")
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _depth(data) > MAX_DEPTH:
        raise UndecodableError(f"is nested deeper than {MAX_DEPTH} levels")
    try:
        return _DECODER.decode(data.decode())
    except UnicodeDecodeError as error:
        raise UndecodableError(f"is not UTF-8 at byte {error.start}, and no JSON") from None
    except json.JSONDecodeError as error:
        raise UndecodableError(f"is not JSON: {error.msg} at character {error.pos}") from None


def text_of(value: object) -> str:
    """A parsed value as compact JSON text; a string as it is. Raises `UndecodableError` for an ambiguous object."""
    match value:
        case str():
            return str(value)
        case _:
            return _json_text(value)


def _json_text(value: object) -> str:
    match value:
        case AmbiguousObject():
            raise ambiguous(value)
        case dict():
            return "{" + ",".join(f"{_quoted(key)}:{_json_text(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ",".join(_json_text(item) for item in value) + "]"
        case Number():
            return str(value)
        case str():
            return _quoted(value)
        case None | bool() | int():
            return json.dumps(value)
        case _:
            raise TypeError(type(value))


def ambiguous(value: AmbiguousObject) -> UndecodableError:
    """The problem of an object with a repeated name."""
    return UndecodableError("stands twice in its object", min(value.names))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else AmbiguousObject(pairs)


def _repeated(keys: list[str]) -> frozenset[str]:
    return frozenset(key for key, count in Counter(keys).items() if count > 1)


def _whole(text: str) -> int | Number:
    return int(text) if len(text) <= _EXACT_DIGITS else Number(text)


def _depth(data: bytes) -> int:
    depth = deepest = 0
    for match in _BRACKETS.finditer(data):
        found = match.group()
        if found in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif found in b"]}":
            depth -= 1
    return deepest


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=Number, parse_int=_whole, parse_constant=Number
)

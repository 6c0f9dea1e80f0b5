"""Converts JSON objects to structs: matches fields by name and handles fields that the type does not have."""

from collections.abc import Callable, Sequence

from spark_jobs.decoding.json.parser import AmbiguousObject, ambiguous
from spark_jobs.decoding.problems import UndecodableError, shown
from spark_jobs.decoding.types import folded

Convert = Callable[[object], object]


def is_untyped(value: object) -> bool:
    """True if `value` has no type: null, and empty arrays and objects, also nested ones."""
    match value:
        case None:
            return True
        case list():
            return all(map(is_untyped, value))
        case dict():
            return all(map(is_untyped, value.values()))
        case _:
            return False


def struct_of(fields: Sequence[tuple[str, Convert]], *, drop_unknown: bool) -> Convert:
    """A function from a parsed object to a dict by field name; missing fields are converted as None."""
    return _given(fields) if drop_unknown else _inferred(fields)


def _given(fields: Sequence[tuple[str, Convert]]) -> Convert:
    """By the exact names, like Spark's from_json. A repeated name matters only if it is a field's."""
    names = frozenset(name for name, _ in fields)

    def of(value: object) -> object:
        found = _require_object(value)
        if isinstance(found, AmbiguousObject) and found.names & names:
            raise UndecodableError("stands twice in its object", min(found.names & names))
        return _converted(fields, found)

    return of


def _inferred(fields: Sequence[tuple[str, Convert]]) -> Convert:
    """By the names without regard to case, because tables cannot tell such fields apart. No field may be lost."""
    spelled = {folded(name): name for name, _ in fields}

    def of(value: object) -> object:
        found = _require_object(value)
        if isinstance(found, AmbiguousObject):
            raise ambiguous(found)
        by_field: dict[str, object] = {}
        for name, item in found.items():
            field = spelled.get(folded(name))
            if field is None:
                _require_untyped(name, item)
            elif field in by_field:
                raise UndecodableError("stands twice in its object, but for case", name)
            else:
                by_field[field] = item
        return _converted(fields, by_field)

    return of


def _converted(fields: Sequence[tuple[str, Convert]], found: dict[str, object]) -> dict[str, object]:
    get = found.get
    converted: dict[str, object] = {}
    name = ""
    try:
        for name, convert in fields:
            converted[name] = convert(get(name))
    except UndecodableError as problem:
        raise problem.within(name) from None
    return converted


def _require_object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        found = "an array" if isinstance(value, list) else shown(value)
        raise UndecodableError(f"is {found}, and not an object")
    return value


def _require_untyped(name: str, item: object) -> None:
    if not is_untyped(item):
        raise UndecodableError("is a field that the table's type does not have and could not be given", name)

"""Fields that count for a row of `metric_families`, and the walk over them that an export makes.

A dataclass's field is bound to its row where it is declared, so that it is a plain attribute to those who count.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple, TypeVar

from kafscale.ops.histogram import Histogram
from kafscale.ops.metric_families import Family

T = TypeVar("T")
Key = TypeVar("Key", str, int)

LabelValues = tuple[str, ...]


class Reading(NamedTuple):
    """The present value of one series of a row."""

    family: Family
    labels: LabelValues
    value: float | Histogram


def counted(family: Family, *labels: str) -> int:
    """A field that counts from 0. `labels`: the values of the row's last labels, where the field decides them."""
    return dataclasses.field(default=0, metadata={"family": family, "labels": labels})


def counted_by(
    family: Family, keys: Iterable[Key] = (), *, shown: Callable[[Key], str] = str
) -> Counter[Key]:
    """A field that counts by the row's last label; `keys` are there from the start, `shown` makes a label of one."""
    known = tuple(keys)
    return dataclasses.field(
        default_factory=lambda: Counter(dict.fromkeys(known, 0)), metadata={"family": family, "shown": shown}
    )


def observed(family: Family, *labels: str) -> Histogram:
    """A field that counts observations, by the row's bounds. `labels`: as of `counted`."""
    return dataclasses.field(
        default_factory=lambda: Histogram(family.bounds), metadata={"family": family, "labels": labels}
    )


def part(make: Callable[[], T]) -> T:
    """A field whose own fields count: an object, or a dictionary of them by the value of the first label."""
    return dataclasses.field(default_factory=make, metadata={"part": True})


class _Bound(NamedTuple):
    """A field that counts, or whose own fields do (`family` None)."""

    name: str
    family: Family | None
    labels: LabelValues
    shown: Callable[[Any], str]


@cache
def _bound_fields(counts_class: Any) -> tuple[_Bound, ...]:
    return tuple(
        _Bound(
            field.name,
            field.metadata.get("family"),
            field.metadata.get("labels", ()),
            field.metadata.get("shown", str),
        )
        for field in dataclasses.fields(counts_class)
        if "family" in field.metadata or "part" in field.metadata
    )


def readings(counts: Any, labels: LabelValues = ()) -> Iterator[Reading]:
    """The present values of all fields of a dataclass.

    For a thread beside the one that counts, which adds to dictionaries: each is copied before it is walked.
    """
    for name, family, own_labels, shown in _bound_fields(counts.__class__):
        value = getattr(counts, name)
        if family is None:
            yield from _of_part(value, labels)
        elif isinstance(value, Counter):
            for key, count in list(value.items()):
                yield Reading(family, (*labels, shown(key)), count)
        else:
            yield Reading(family, labels + own_labels, value)


def _of_part(value: Any, labels: LabelValues) -> Iterator[Reading]:
    if not isinstance(value, dict):
        yield from readings(value, labels)
        return
    for label, each in list(value.items()):
        yield from readings(each, (*labels, label))

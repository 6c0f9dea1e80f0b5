"""The series, labels and functions that a PromQL expression uses, by a real parser."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import promql_parser

RATES = frozenset({"rate", "irate", "increase"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """A condition on a label, as `op` says: `=`, `!=`, `=~`, `!~`."""

    label: str
    op: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Series that are asked for. `function`: what they go through first; empty for none."""

    metric: str
    matchers: tuple[Matcher, ...]
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Labels that an aggregation keeps or drops, and of which series."""

    labels: tuple[str, ...]
    selectors: tuple[Selector, ...]


def selectors(expression: str) -> tuple[Selector, ...]:
    """All of them. Raises `ValueError` for what is no PromQL."""
    return tuple(_selectors(promql_parser.parse(expression), ""))


def groupings(expression: str) -> tuple[Grouping, ...]:
    """Every aggregation's."""
    return tuple(_groupings(promql_parser.parse(expression)))


def _selectors(node: Any, function: str) -> Iterator[Selector]:
    match node:
        case promql_parser.VectorSelector():
            yield _selector(node, function)
        case promql_parser.MatrixSelector():
            yield _selector(node.vector_selector, function)
        case promql_parser.Call():
            for argument in node.args:
                yield from _selectors(argument, node.func.name)
        case _:
            for child in _children(node):
                yield from _selectors(child, function)


def _selector(node: Any, function: str) -> Selector:
    found = [*node.matchers.matchers, *(one for each in node.matchers.or_matchers for one in each)]
    matchers = tuple(Matcher(label=one.name, op=_operator(one.op), value=one.value) for one in found)
    return Selector(metric=node.name, matchers=matchers, function=function)


def _operator(found: Any) -> str:
    # They have no hash.
    operators = promql_parser.MatchOp
    known = [
        (operators.Equal, "="),
        (operators.NotEqual, "!="),
        (operators.Re, "=~"),
        (operators.NotRe, "!~"),
    ]
    return next(written for operator, written in known if operator == found)


def _groupings(node: Any) -> Iterator[Grouping]:
    if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
        yield Grouping(labels=tuple(node.modifier.labels), selectors=tuple(_selectors(node.expr, "")))
    for child in _children(node):
        yield from _groupings(child)


def _children(node: Any) -> list[Any]:
    match node:
        case promql_parser.BinaryExpr():
            return [node.lhs, node.rhs]
        case promql_parser.AggregateExpr():
            return [node.expr] + ([node.param] if node.param is not None else [])
        case promql_parser.Call():
            return list(node.args)
        case promql_parser.ParenExpr() | promql_parser.UnaryExpr() | promql_parser.SubqueryExpr():
            return [node.expr]
        case _:
            return []

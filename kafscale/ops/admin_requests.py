"""Requests to the admin HTTP server and their answers, as values; and the interface of pages beside the metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol

TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminRequest:
    """A GET or HEAD. `query`: without the question mark, not decoded. `host`, `authorization`: the headers."""

    path: str
    query: str = ""
    host: str | None = None
    authorization: str | None = None


@dataclass(frozen=True, slots=True)
class AdminAnswer:
    """An answer with its own headers, beside those that every answer has."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class AdminPages(Protocol):
    """Pages beside the metrics."""

    def answer(self, request: AdminRequest) -> AdminAnswer | None:
        """The answer; None if there is no such page. Called from many threads at once, never on the event loop."""


def text_answer(status: HTTPStatus, text: str, **headers: str) -> AdminAnswer:
    """A line of text. `headers`: with underscores for the hyphens of their names."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return AdminAnswer(status, TEXT, f"{text}\n".encode(), named)

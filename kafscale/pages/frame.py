"""The frame around every page: its heading, the way to the others, and the document itself."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from kafscale.pages.markup import Child, address, element, link, written
from kafscale.pages.style import STYLE

REFRESH_SEC: Final = 5

NAVIGATION: Final = (
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/stores", "Stores"),
    ("/requests", "Requests"),
)

_MAX_FIELDS: Final = 16
_MAX_PAGE_DIGITS: Final = 7


class BadQueryError(ValueError):
    """The parameters of an address cannot be read; the message is for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The parameters of a page. `name`: of the topic or group. `find`: part of names. `page` from 1 on."""

    path: str
    name: str = ""
    find: str = ""
    sort: str = ""
    page: int = 1
    is_refreshed: bool = False

    @property
    def refresh(self) -> str | None:
        """The parameter that keeps a page refreshed, for links."""
        return str(REFRESH_SEC) if self.is_refreshed else None


def asked_of(path: str, query: str) -> Asked:
    """The parameters; those that are not known are ignored. Raises `BadQueryError`."""
    try:
        fields = dict(
            parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="backslashreplace")
        )
    except ValueError as problem:
        raise BadQueryError(f"an address has at most {_MAX_FIELDS} parameters") from problem
    page = fields.get("page", "1")
    if not (page.isascii() and page.isdigit() and len(page) <= _MAX_PAGE_DIGITS and int(page)):
        raise BadQueryError(f"page is a number from 1 to {10**_MAX_PAGE_DIGITS - 1}")
    return Asked(
        path=path,
        name=fields.get("name", ""),
        find=fields.get("find", ""),
        sort=fields.get("sort", ""),
        page=int(page),
        is_refreshed="refresh" in fields,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Which broker shows the page, of which cluster (empty while it is not known), at what time."""

    broker_id: int
    version: str
    cluster_id: str
    shown_at: str
    asked: Asked


def document(frame: Frame, title: str, *children: Child) -> bytes:
    """The page's bytes. `title` is shown in the window's title and stands in no heading."""
    asked = frame.asked
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="refresh", content=str(REFRESH_SEC)) if asked.is_refreshed else None,
        element("title", f"{title} - Kafscale broker {frame.broker_id}"),
        element("link", rel="icon", href="data:,"),
        element("style", STYLE),
    )
    return written(element("html", head, element("body", *_body(frame, children)), lang="en"))


def _body(frame: Frame, children: tuple[Child, ...]) -> tuple[Child, ...]:
    cluster = f" of cluster {frame.cluster_id}" if frame.cluster_id else ""
    top = element(
        "div",
        link(address("/", refresh=frame.asked.refresh), "Kafscale", class_="brand"),
        element("span", f"broker {frame.broker_id}{cluster}", class_="where"),
        class_="top",
    )
    footer = element(
        "footer",
        f"Kafscale {frame.version}, {frame.shown_at}. "
        "Figures are this broker's own: of what it leads and coordinates. ",
        link("/metrics", "Metrics"),
        ", ",
        link("/healthz", "healthz"),
        ", ",
        link("/readyz", "readyz"),
        ".",
    )
    return (
        element("header", top, element("div", _navigation(frame.asked))),
        element("main", *children),
        footer,
    )


def _navigation(asked: Asked) -> Child:
    at = {"/topic": "/topics", "/group": "/groups"}.get(asked.path, asked.path)
    links = (
        link(address(path, refresh=asked.refresh), title, aria_current="page" if path == at else None)
        for path, title in NAVIGATION
    )
    same = {
        "name": asked.name if asked.path in ("/topic", "/group") else None,
        "find": asked.find or None,
        "sort": asked.sort or None,
        "page": str(asked.page) if asked.page > 1 else None,
    }
    toggle = (
        link(address(asked.path, **same), "Stop refreshing", class_="refresh")
        if asked.is_refreshed
        else link(
            address(asked.path, **same, refresh=REFRESH_SEC),
            f"Refresh every {REFRESH_SEC} s",
            class_="refresh",
        )
    )
    return element("nav", *links, toggle)

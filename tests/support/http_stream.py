"""HTTP/1.1 messages on asyncio streams, forwarded byte for byte."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import unquote

HEAD_END = b"\r\n\r\n"
LINE_END = b"\r\n"
PIECE_BYTES = 1 << 18
NO_BODY_STATUSES = (204, 304)


class HttpStreamError(Exception):
    """The data is no HTTP message, or it ended in the middle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A message's first line and headers. `raw`: as they came, with the empty line; names in lower case."""

    raw: bytes
    first_line: tuple[str, str, str]
    headers: dict[str, str]

    @property
    def method(self) -> str:
        """The method of a request."""
        return self.first_line[0]

    @property
    def path(self) -> str:
        """The path of a request: without its query, percent signs resolved."""
        return unquote(self.first_line[1].partition("?")[0])

    @property
    def query(self) -> str:
        """The query of a request, as it came."""
        return self.first_line[1].partition("?")[2]

    @property
    def status(self) -> int:
        """The status of a response."""
        return int(self.first_line[1])

    @property
    def keeps_alive(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"

    def without(self, name: str) -> bytes:
        """`raw` without one header."""
        kept = [
            line
            for line in self.raw[: -len(HEAD_END)].split(LINE_END)
            if line.partition(b":")[0].strip().lower() != name.encode()
        ]
        return LINE_END.join(kept) + HEAD_END


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next message's head; None if the connection ends before it starts. Raises `HttpStreamError`."""
    try:
        raw = await reader.readuntil(HEAD_END)
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise HttpStreamError(f"the connection ended in a head: {error.partial[:200]!r}") from error
    except asyncio.LimitOverrunError as error:
        raise HttpStreamError("a head without an end") from error
    first, *lines = raw[: -len(HEAD_END)].decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2:
        raise HttpStreamError(f"no first line of HTTP: {first[:200]!r}")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    return Head(raw=raw, first_line=(words[0], words[1], words[-1]), headers=headers)


def request_body(reader: asyncio.StreamReader, head: Head) -> AsyncIterator[bytes]:
    """The pieces of a request's body as they come over the connection, its framing included."""
    if _is_chunked(head):
        return _chunked(reader)
    return _counted(reader, int(head.headers.get("content-length", "0")))


def is_delimited(head: Head, method: str) -> bool:
    """True if a response to a request with that method ends before its connection does."""
    return (
        method == "HEAD"
        or head.status in NO_BODY_STATUSES
        or "content-length" in head.headers
        or _is_chunked(head)
    )


def response_body(reader: asyncio.StreamReader, head: Head, method: str) -> AsyncIterator[bytes]:
    """As `request_body`, for a response to a request with that method."""
    if method == "HEAD" or head.status in NO_BODY_STATUSES:
        return _counted(reader, 0)
    if _is_chunked(head):
        return _chunked(reader)
    if "content-length" in head.headers:
        return _counted(reader, int(head.headers["content-length"]))
    return _to_the_end(reader)


def _is_chunked(head: Head) -> bool:
    return "chunked" in head.headers.get("transfer-encoding", "").lower()


async def _counted(reader: asyncio.StreamReader, count: int) -> AsyncIterator[bytes]:
    while count:
        piece = await reader.read(min(count, PIECE_BYTES))
        if not piece:
            raise HttpStreamError(f"the connection ended {count} bytes before the end of a body")
        count -= len(piece)
        yield piece


async def _chunked(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        line = await _line(reader)
        yield line
        size = int(line.split(b";")[0], 16)
        if size == 0:
            break
        async for piece in _counted(reader, size + len(LINE_END)):
            yield piece
    while line != LINE_END:  # trailers, then an empty line
        line = await _line(reader)
        yield line


async def _to_the_end(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while piece := await reader.read(PIECE_BYTES):
        yield piece


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(LINE_END)
    except asyncio.IncompleteReadError as error:
        raise HttpStreamError("the connection ended in a chunked body") from error

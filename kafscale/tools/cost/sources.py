"""Where metrics come from: brokers over HTTP, and files."""

import http.client
import re
import ssl
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kafscale.tools.cost.scrape import Scrape, ScrapeError, parse_scrape

TIMEOUT_SEC: Final = 10.0
MOST_BYTES: Final = 256 * 2**20

_AT_ONCE: Final = 16
_HOST_AND_PORT: Final = re.compile(r"(\[[0-9a-fA-F:]+\]|[a-zA-Z0-9._-]+):[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Source:
    """The metrics of one broker: a URL, or a file with what it answered."""

    name: str
    is_file: bool


def source_of(text: str) -> Source:
    """The source that an option names: a URL, `host:port`, or a path. Raises `ScrapeError`."""
    if "://" not in text:
        if _HOST_AND_PORT.fullmatch(text) and not Path(text).exists():
            return Source(f"http://{text}/metrics", is_file=False)
        if not text:
            raise ScrapeError("the name of a source is empty: it must be a URL, host:port or a file's path")
        return Source(text, is_file=True)
    try:
        parts = urlsplit(text)
        is_legal = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_legal = False
    if not is_legal or "@" in parts.netloc:
        raise ScrapeError(
            f"{text} is not legal: it must be http://host:port or https://host:port, with a path other than "
            "/metrics if need be and without a user, or a file's path"
        )
    path = "/metrics" if parts.path in ("", "/") else parts.path
    query = f"?{parts.query}" if parts.query else ""
    return Source(f"{parts.scheme}://{parts.netloc}{path}{query}", is_file=False)


def read_all(sources: Iterable[Source]) -> list[Scrape]:
    """The scrapes in the order of the sources, which are read side by side. Raises `ScrapeError`."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(read, sources))


def read(source: Source) -> Scrape:
    """One scrape; of a file it is as old as the file. Raises `ScrapeError`."""
    if not source.is_file:
        text = _fetched(source.name)
        return parse_scrape(source.name, text, time.time())
    path = Path(source.name)
    try:
        return parse_scrape(source.name, path.read_text(encoding="utf-8"), path.stat().st_mtime)
    except OSError as problem:
        raise ScrapeError(
            f"cannot read {source.name}: {problem.strerror}; it must be a file with a broker's metrics, or a URL "
            "such as http://host:9093/metrics"
        ) from problem
    except UnicodeDecodeError as problem:
        raise ScrapeError(f"{source.name} is not in Prometheus' text form: it is not UTF-8") from problem


def _fetched(url: str) -> str:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection = (
        http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SEC, context=ssl.create_default_context())
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=TIMEOUT_SEC)
    )
    try:
        connection.request("GET", url.split(parts.netloc, 1)[1])
        answer = connection.getresponse()
        content = answer.read(MOST_BYTES + 1)
    except (OSError, http.client.HTTPException) as problem:
        raise ScrapeError(
            f"{url} does not answer: {problem or type(problem).__name__}; is the broker running, and is this its "
            "KAFSCALE_METRICS_ADDR?"
        ) from problem
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise ScrapeError(f"{url} answers with status {answer.status}: is it the /metrics of a broker?")
    if len(content) > MOST_BYTES:
        raise ScrapeError(
            f"{url} answers with more than {MOST_BYTES // 2**20} MiB: it is no broker's /metrics"
        )
    return content.decode(errors="replace")


def names(sources: Sequence[Source]) -> str:
    """The sources in words."""
    return sources[0].name if len(sources) == 1 else f"{len(sources)} brokers"

"""Outcomes of the frames, by API."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from kafscale.handlers.routes import ROUTES_BY_KEY
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.fetch import decode_fetch_request
from kafscale.protocol.header import parse_request_header
from kafscale.protocol.messages import decode_request
from kafscale.protocol.produce import decode_produce_request
from kafscale.protocol.wire import MalformedRequestError

_NO_API = "(none)"
_MOST_UNEXPLAINED = 20


class Fate(StrEnum):
    """The outcome of a frame."""

    ANSWERED = "answered"
    SILENT = "silent"  # acks=0: there is no reply
    WAITED = "waited"  # no reply in time: a long poll, a rebalance
    BODY_REFUSED = "body refused"  # the connection was closed after the header had been read
    HEADER_REFUSED = "header refused"
    TORN = "torn"  # sent in part


LOOKED_AT = (Fate.ANSWERED, Fate.SILENT, Fate.WAITED, Fate.BODY_REFUSED)


def decode(payload: bytes) -> object:
    """The request as the broker decodes it. Raises `MalformedRequestError`; None when it is not served."""
    frame = memoryview(payload)
    header = parse_request_header(frame)
    route = ROUTES_BY_KEY.get(header.api_key)
    if route is None or not route.min_version <= header.api_version <= route.max_version:
        return None
    body = frame[header.body_offset :]
    match header.api_key:
        case ApiKey.PRODUCE:
            return decode_produce_request(body, header.api_version)
        case ApiKey.FETCH:
            return decode_fetch_request(body, header.api_version)
    return decode_request(header.api_key, header.api_version, body)


def decodes(payload: bytes) -> bool:
    """True if the broker should find nothing wrong with the request's form."""
    try:
        return decode(payload) is not None
    except MalformedRequestError:
        return False


def has_no_reply(payload: bytes) -> bool:
    """True for a Produce with acks=0."""
    if payload[:2] != b"\x00\x00":
        return False
    try:
        request = decode(payload)
    except MalformedRequestError:
        return False
    return request is not None and getattr(request, "acks", None) == 0


@dataclass(slots=True)
class Tally:
    """Counts by API and fate. `unexplained`: requests that decode well and still ended their connection."""

    counts: dict[str, Counter[Fate]] = field(default_factory=dict)
    unexplained: list[bytes] = field(default_factory=list)
    connections: int = 0

    def count(self, payload: bytes, fate: Fate) -> None:
        """A frame has come to its end."""
        key = int.from_bytes(payload[:2], signed=True)
        name = ApiKey(key).api_name if key in ROUTES_BY_KEY else _NO_API
        self.counts.setdefault(name, Counter())[fate] += 1

    def closed_by(self, payload: bytes) -> None:
        """The broker closed the connection instead of answering this frame."""
        try:
            header = parse_request_header(memoryview(payload))
        except MalformedRequestError:
            self.count(payload, Fate.HEADER_REFUSED)
            return
        route = ROUTES_BY_KEY.get(header.api_key)
        if route is None or not route.min_version <= header.api_version <= route.max_version:
            self.count(payload, Fate.HEADER_REFUSED)
            return
        self.count(payload, Fate.BODY_REFUSED)
        if decodes(payload) and not has_no_reply(payload) and len(self.unexplained) < _MOST_UNEXPLAINED:
            self.unexplained.append(payload)

    @property
    def frames(self) -> int:
        """All that have come to their end."""
        return sum(counts.total() for counts in self.counts.values())

    @property
    def looked_at(self) -> int:
        """Those whose body the broker began to decode."""
        return sum(counts[fate] for counts in self.counts.values() for fate in LOOKED_AT)

    def table(self) -> Iterator[str]:
        """A line for each API, and one for all."""
        yield f"{'API':24}" + "".join(f"{fate:>16}" for fate in Fate)
        for name, counts in sorted(self.counts.items()):
            yield f"{name:24}" + "".join(f"{counts[fate]:16,}" for fate in Fate)
        every = sum(self.counts.values(), Counter[Fate]())
        yield f"{'all':24}" + "".join(f"{every[fate]:16,}" for fate in Fate)

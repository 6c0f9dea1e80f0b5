"""Faults of requests, ordered by a test: which requests fail, are answered late, or cost their connection. Pure.

`FaultyDispatcher` carries them out. To bind them, give a broker's parts a `RequestFaults` of its own:

    faults = RequestFaults()
    BasicParts(..., around_dispatcher=partial(FaultyDispatcher, faults))

Any thread orders; the loop's thread carries out.
"""

import difflib
import math
import threading
from collections.abc import Callable, Collection
from typing import Final, Self, TypeVar

from kafscale.handlers.routes import ROUTES
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode
from kafscale.testing.error_carriers import APIS, names_partitions, names_topics

_SERVED: Final = {route.api.api_name: route.api for route in ROUTES}
_ERRORS: Final = {code.name: code for code in ErrorCode if code is not ErrorCode.NONE}
_LONGEST_DELAY_SEC: Final = 24 * 3600.0


class Fault:
    """One order, from `RequestFaults`, until it has been carried out `times` times or is removed.

    As a context manager it is removed at the end of the block. `times` is None: as long as it is not removed.
    """

    def __init__(self, api: ApiKey | None, times: int | None, ended: Callable[["Fault"], None]) -> None:
        self.api = api
        self._left = times
        self._ended = ended
        self._hits = 0
        self._changed = threading.Condition()

    @property
    def hits(self) -> int:
        """How many requests it has hit so far."""
        return self._hits

    def is_for(self, api: ApiKey) -> bool:
        """True if it concerns the API."""
        return self.api is None or self.api is api

    def take(self) -> bool:
        """A request is hit; False if it is not in force any more."""
        with self._changed:
            if self._left == 0:
                return False
            if self._left is not None:
                self._left -= 1
            self._hits += 1
            is_over = self._left == 0
            self._changed.notify_all()
        if is_over:
            self._ended(self)
        return True

    def wait_for_hits(self, hits: int = 1, timeout_sec: float = 10.0) -> None:
        """Wait until so many requests were hit. Raises `TimeoutError`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._hits >= hits, timeout_sec):
                raise TimeoutError(f"{self} has hit {self._hits} requests after {timeout_sec} s, not {hits}")

    def remove(self) -> None:
        """No further request is hit. No error if it is not in force any more."""
        with self._changed:
            self._left = 0
        self._ended(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.remove()

    def __str__(self) -> str:
        return f"{type(self).__name__} of {'every API' if self.api is None else self.api.api_name}"


class Failure(Fault):
    """An error in the place of an answer; with `topic`, only for what the request wants of it."""

    def __init__(
        self,
        api: ApiKey,
        times: int | None,
        ended: Callable[[Fault], None],
        error: ErrorCode,
        topic: str | None,
        partition: int | None,
    ) -> None:
        super().__init__(api, times, ended)
        self.error = error
        self.topic = topic
        self.partition = partition


class Delay(Fault):
    """A late answer."""

    def __init__(
        self, api: ApiKey | None, times: int | None, ended: Callable[[Fault], None], seconds: float
    ) -> None:
        super().__init__(api, times, ended)
        self.seconds = seconds


class Drop(Fault):
    """The end of the connection in the place of an answer. `after`: the request is carried out before."""

    def __init__(
        self, api: ApiKey | None, times: int | None, ended: Callable[[Fault], None], after: bool
    ) -> None:
        super().__init__(api, times, ended)
        self.after = after


F = TypeVar("F", bound=Fault)


class RequestFaults:
    """The faults that are ordered for one broker. `rules`: those in force, the oldest first."""

    def __init__(self) -> None:
        self.rules: tuple[Fault, ...] = ()
        self._lock = threading.Lock()

    def fail(
        self,
        api: str | ApiKey,
        error: str | ErrorCode,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
    ) -> Failure:
        """Answer the next `times` requests of the API with an error; they are not carried out.

        The error stands where the API carries it: for the whole request, or for everything that it names. With
        `topic`, and `partition`, only for that; what else the request names is carried out. Metadata is an
        exception: its answer is complete, so that clients find the brokers, and its topics have the error.

        Raises `ValueError` for an API, an error or a filter that there is not, with what is legal.
        """
        key, code = _api(api), _error(error)
        if key not in APIS:
            legal = ", ".join(sorted(one.api_name for one in APIS))
            raise ValueError(f"api={key.api_name!r} cannot be failed; legal are {legal}")
        _check_filter(key, topic, partition)
        rule = Failure(key, _times(times), self._remove, code, topic, partition)
        return self._add(rule)

    def delay(self, api: str | ApiKey | None, seconds: float, *, times: int | None = 1) -> Delay:
        """Hold the answers to the next `times` requests of the API back; None: of every API.

        The requests are carried out at once. The answers behind a late one on its connection wait with it, as
        clients expect; other connections do not. Raises `ValueError`.
        """
        if not 0 <= seconds <= _LONGEST_DELAY_SEC or math.isnan(seconds):
            raise ValueError(f"seconds={seconds} is not legal: from 0 to {_LONGEST_DELAY_SEC:.0f}")
        return self._add(Delay(None if api is None else _api(api), _times(times), self._remove, seconds))

    def drop_connection(
        self, api: str | ApiKey | None = None, *, times: int | None = 1, after: bool = False
    ) -> Drop:
        """End the connection of the next `times` requests of the API instead of an answer; None: of every API.

        `after`: carry the request out before, so that the client cannot know if it was. Raises `ValueError`.
        """
        return self._add(Drop(None if api is None else _api(api), _times(times), self._remove, after))

    def clear(self) -> None:
        """Remove all."""
        for rule in self.rules:
            rule.remove()

    def _add(self, rule: F) -> F:
        with self._lock:
            self.rules = (*self.rules, rule)
        return rule

    def _remove(self, rule: Fault) -> None:
        with self._lock:
            self.rules = tuple(one for one in self.rules if one is not rule)


def _api(given: str | ApiKey) -> ApiKey:
    name = given.api_name if isinstance(given, ApiKey) else given
    found = _SERVED.get(name)
    if found is None:
        raise ValueError(f"api={name!r} is not an API of this broker{_hint(name, _SERVED)}")
    return found


def _error(given: str | ErrorCode) -> ErrorCode:
    name = given.name if isinstance(given, ErrorCode) else given
    found = _ERRORS.get(name)
    if found is None:
        raise ValueError(f"error={name!r} is not one of Kafka's errors{_hint(name, _ERRORS)}")
    return found


def _hint(name: object, legal: Collection[str]) -> str:
    near = difflib.get_close_matches(str(name), legal, n=3, cutoff=0.6)
    return f": did you mean {' or '.join(near)}?" if near else f"; legal are {', '.join(sorted(legal))}"


def _check_filter(api: ApiKey, topic: str | None, partition: int | None) -> None:
    if partition is not None and topic is None:
        raise ValueError(f"partition={partition} is not legal without a topic")
    if topic is not None and not names_topics(api):
        raise ValueError(f"topic={topic!r} is not legal: {api.api_name} has no error for each topic")
    if partition is not None and not names_partitions(api):
        raise ValueError(
            f"partition={partition} is not legal: {api.api_name} has no error for each partition"
        )


def _times(given: int | None) -> int | None:
    if given is not None and given < 1:
        raise ValueError(f"times={given} is not legal: at least 1, or None for as long as it is not removed")
    return given

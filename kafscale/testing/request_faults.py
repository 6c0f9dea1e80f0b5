"""Faults of requests, ordered by a test: which requests fail, are answered late, or cost their connection. Pure.

`FaultyDispatcher` carries them out. To bind them, give a broker's parts a `RequestFaults` of its own:

    faults = RequestFaults()
    BasicParts(..., around_dispatcher=partial(FaultyDispatcher, faults))
"""

import difflib
import math
from collections.abc import Collection
from typing import Final

from kafscale.handlers.routes import ROUTES
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode
from kafscale.testing.error_carriers import APIS, names_partitions, names_topics
from kafscale.testing.fault import Fault, Faults

_SERVED: Final = {route.api.api_name: route.api for route in ROUTES}
_ERRORS: Final = {code.name: code for code in ErrorCode if code is not ErrorCode.NONE}
_LONGEST_DELAY_SEC: Final = 24 * 3600.0


class RequestFault(Fault):
    """One order for requests of an API; None: of every API."""

    def __init__(self, api: ApiKey | None, times: int | None) -> None:
        super().__init__(f"a fault of {'every API' if api is None else api.api_name}", times)
        self.api = api

    def is_for(self, api: ApiKey) -> bool:
        """True if it concerns the API."""
        return self.api is None or self.api is api


class Failure(RequestFault):
    """An error in the place of an answer; with `topic`, only for what the request wants of it."""

    def __init__(
        self, api: ApiKey, times: int | None, error: ErrorCode, topic: str | None, partition: int | None
    ) -> None:
        super().__init__(api, times)
        self.error = error
        self.topic = topic
        self.partition = partition


class Delay(RequestFault):
    """A late answer."""

    def __init__(self, api: ApiKey | None, times: int | None, seconds: float) -> None:
        super().__init__(api, times)
        self.seconds = seconds


class Drop(RequestFault):
    """The end of the connection in the place of an answer. `after`: the request is carried out before."""

    def __init__(self, api: ApiKey | None, times: int | None, after: bool) -> None:
        super().__init__(api, times)
        self.after = after


class RequestFaults(Faults[RequestFault]):
    """The faults of requests that are ordered for one broker."""

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
        rule = Failure(key, times, code, topic, partition)
        self._add(rule)
        return rule

    def delay(self, api: str | ApiKey | None, seconds: float, *, times: int | None = 1) -> Delay:
        """Hold the answers to the next `times` requests of the API back; None: of every API.

        The requests are carried out at once. The answers behind a late one on its connection wait with it, as
        clients expect; other connections do not. Raises `ValueError`.
        """
        if not 0 <= seconds <= _LONGEST_DELAY_SEC or math.isnan(seconds):
            raise ValueError(f"seconds={seconds} is not legal: from 0 to {_LONGEST_DELAY_SEC:.0f}")
        rule = Delay(None if api is None else _api(api), times, seconds)
        self._add(rule)
        return rule

    def drop_connection(
        self, api: str | ApiKey | None = None, *, times: int | None = 1, after: bool = False
    ) -> Drop:
        """End the connection of the next `times` requests of the API instead of an answer; None: of every API.

        `after`: carry the request out before, so that the client cannot know if it was. Raises `ValueError`.
        """
        rule = Drop(None if api is None else _api(api), times, after)
        self._add(rule)
        return rule


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

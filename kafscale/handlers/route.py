"""One API that is served: its versions, its handler, and what a client must be allowed (`routes` has them all)."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kafscale.handlers.needs import Need, Needs, Open
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.api_messages import Request, Response
from kafscale.serving.context import Broker, Reply, RequestContext

R = TypeVar("R", bound="Request")  # quoted: kafka-python's base class has no truth value

Answer = Response | bytes
"""A message, or a whole frame."""

MessageHandler = Callable[[Broker, RequestContext, R], Answer | Awaitable[Answer]]
"""Takes a decoded message and returns the response, or an awaitable of it."""

BodyHandler = Callable[[Broker, RequestContext, memoryview, Reply], Awaitable[None] | None]
"""Takes the request's bytes and replies itself; see `produce.handle` for the value that it may return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One API. Exactly one of the two handlers is set.

    `needs`: what the client's access must allow; the handler asks, for each resource. Raises `ValueError` without.

    `waits_for_clients`: other clients of the group decide when it is answered, within times that the client chose.
    What such a request keeps meanwhile counts in the memory for groups, and its bytes are released.
    """

    api: ApiKey
    min_version: int
    max_version: int
    needs: Needs
    message_handler: MessageHandler[Any] | None = None
    body_handler: BodyHandler | None = None
    waits_for_clients: bool = False

    def __post_init__(self) -> None:
        if not self.needs:
            raise ValueError(f"the route of {self.api.name} says nothing of what a client must be allowed")


def cold(
    request: type[R],
    min_version: int,
    max_version: int,
    handler: MessageHandler[R],
    *needs: Need | Open,
    waits_for_clients: bool = False,
) -> Route:
    """An API whose requests are decoded by their schema, into what the handler takes."""
    return Route(
        api=ApiKey(request.API_KEY),
        min_version=min_version,
        max_version=max_version,
        needs=_needs(needs),
        message_handler=handler,
        waits_for_clients=waits_for_clients,
    )


def hot(api: ApiKey, min_version: int, max_version: int, handler: BodyHandler, *needs: Need | Open) -> Route:
    """An API whose handler takes the bytes of the request."""
    return Route(
        api=api,
        min_version=min_version,
        max_version=max_version,
        needs=_needs(needs),
        body_handler=handler,
    )


def _needs(given: Sequence[Need | Open]) -> Needs:
    if len(given) == 1 and isinstance(given[0], Open):
        return given[0]
    return tuple(need for need in given if isinstance(need, Need))

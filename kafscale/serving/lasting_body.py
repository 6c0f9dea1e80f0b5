"""A request's body that is used after the handler has returned."""

from typing import Final

from kafscale.protocol.types import Buffer

LASTING_BODY_BYTES: Final = 1024 * 1024
"""A larger body is in memory of its own, which stays unchanged until the handler's awaitable has been awaited.

A smaller one may be in the buffer that all connections receive into, which is overwritten after the handler returns.
"""


def lasting(body: memoryview) -> Buffer:
    """The body, copied if it would not stay unchanged."""
    return body if len(body) > LASTING_BODY_BYTES else bytes(body)

"""A request's body that is used after the handler has returned."""

from typing import Final

from kafscale.protocol.types import Buffer

LASTING_BODY_BYTES: Final = 1024 * 1024
"""A larger body lies in memory of its own, which stays as it is until what the handler returned has been awaited.

A smaller one may lie in the buffer that all connections receive into, and is another client's after the return.
"""


def lasting(body: memoryview) -> Buffer:
    """The body, copied if it would not stay as it is."""
    return body if len(body) > LASTING_BODY_BYTES else bytes(body)

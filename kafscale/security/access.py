"""The access of one client: the only way by which a handler checks what it may do."""

from collections.abc import Callable
from typing import Final, Protocol

from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_keys import ApiKey
from kafscale.security.principal import ANONYMOUS, Principal

EVERY_OPERATION: Final = (1 << 16) - 1
"""As bits, bit n for the operation with code n."""


class Access(Protocol):
    """The rights of one client, bound to its principal and its address. Rules may change between two questions."""

    @property
    def principal(self) -> Principal:
        """Who the client is."""

    @property
    def is_restricted(self) -> bool:
        """False if the client may do everything, now and later: nothing has to be checked."""

    def allows(
        self, operation: Operation, resource_type: ResourceType, name: str, *, quiet: bool = False
    ) -> bool:
        """True if the client may do this with the resource. The cluster's name is `CLUSTER_NAME`.

        `quiet`: the client did not ask for the resource; to leave it out is not reported as a refusal.
        """

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """True if there may be a resource of the type with which the client may do this (KIP-679)."""

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """The operations that the client may do with the resource: bit n for the operation with code n."""

    def in_request(self, api: ApiKey) -> "Access":
        """The same for a request of the API, which reports of refusals name."""


class Unrestricted:
    """Everything is allowed: no authorizer is configured."""

    __slots__ = ("principal",)

    is_restricted: Final = False

    def __init__(self, principal: Principal = ANONYMOUS) -> None:
        self.principal = principal

    def allows(
        self, operation: Operation, resource_type: ResourceType, name: str, *, quiet: bool = False
    ) -> bool:
        """See `Access`."""
        return True

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """See `Access`."""
        return True

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """See `Access`."""
        return EVERY_OPERATION

    def in_request(self, api: ApiKey) -> Access:
        """See `Access`."""
        return self


UNRESTRICTED: Final[Access] = Unrestricted()
"""A client of which nothing is known, where no authorizer is configured."""

AccessFactory = Callable[[Principal, str], Access]
"""The rights of a principal at an address, which is the peer's as text. Called when a connection begins, and again
when its client has authenticated itself."""


def unrestricted(principal: Principal, host: str) -> Access:
    """The factory where no authorizer is configured: the principal may do everything."""
    return UNRESTRICTED if principal == ANONYMOUS else Unrestricted(principal)

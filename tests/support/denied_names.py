"""A client that may do everything but with some resources, for tests of handlers without an authorizer."""

from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.security.access import Unrestricted


class DeniedNames(Unrestricted):
    """Nothing is allowed with the named resources, of any type."""

    is_restricted = True  # type: ignore[misc]

    def __init__(self, *denied: str) -> None:
        super().__init__()
        self._denied = denied

    def allows(
        self, operation: Operation, resource_type: ResourceType, name: str, *, quiet: bool = False
    ) -> bool:
        """See `Access`."""
        return name not in self._denied

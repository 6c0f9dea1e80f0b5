"""Errors in a resource that Kubernetes accepted, and errors of calls to the Kubernetes API."""

from kafscale.errors import KafscaleError


class SpecError(Exception):
    """The specification must change before it can be carried out; the message names field and value."""


class KafscaleConflictError(KafscaleError):
    """A concurrent change of the same record; nothing was written. Read again."""


class KubeError(KafscaleError):
    """Base of failed calls to the Kubernetes API."""


class KubeRefusedError(KubeError):
    """The API server refused, and changed nothing. `reason`: its word, such as NotFound, Conflict or Invalid."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"the Kubernetes API refuses ({status} {reason}): {message}")
        self.status = status
        self.reason = reason
        self.message = message


class KubeUnreachableError(KubeError):
    """The outcome is unknown: a write may have happened. Read back before deciding."""


class KubeAccessError(KubeError):
    """Address or identity for the Kubernetes API is missing or unreadable; the message says what to set."""


class LeadershipLostError(KubeError):
    """Another operator may be the leader, so this one must not write."""

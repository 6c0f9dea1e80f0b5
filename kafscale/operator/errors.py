"""What is wrong with a resource that Kubernetes accepted, and what can go wrong on the way to Kubernetes."""

from kafscale.errors import KafscaleError


class SpecError(Exception):
    """A specification that cannot be carried out until somebody changes it; the message names field and value."""


class KubeError(KafscaleError):
    """Base of what fails at the Kubernetes API."""


class KubeRefusedError(KubeError):
    """The API server said no, and did nothing. `reason` is its word: NotFound, Conflict, Forbidden, Invalid..."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"the Kubernetes API refuses ({status} {reason}): {message}")
        self.status = status
        self.reason = reason
        self.message = message


class KubeUnreachableError(KubeError):
    """No answer, or none that says what was done: a write may have happened. Read back before deciding."""


class KubeAccessError(KubeError):
    """It is not known where the Kubernetes API is or as whom to come; the message says what to set."""


class LeadershipLostError(KubeError):
    """Another operator may work by now, so this one writes nothing more."""

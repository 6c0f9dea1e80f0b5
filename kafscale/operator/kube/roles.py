"""The parts of `KubeClient` that the operator uses, one protocol for each need: tests have stand-ins."""

from collections.abc import Mapping
from typing import Any, Protocol

from kafscale.operator.kube.kinds import Kind


class Finds(Protocol):
    """Reads one object."""

    async def find(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any] | None:
        """One object, or None."""


class Lists(Protocol):
    """Reads the objects of a kind."""

    async def list(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """Those of a namespace with the labels."""


class Applies(Finds, Protocol):
    """Writes objects, after a look at what is there."""

    async def apply(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Server-side apply; with a resourceVersion only over that version."""


class Deletes(Protocol):
    """Deletes objects."""

    async def delete(self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None) -> bool:
        """False if there was none; `uid`: only that object."""


class RecordsEvents(Protocol):
    """Writes events."""

    async def event(self, about: Mapping[str, Any], reason: str, message: str, *, warning: bool) -> None:
        """Records an event about the object."""


class AppliesStatus(RecordsEvents, Protocol):
    """Writes a share of a status, and events about it."""

    async def apply_status(
        self, kind: Kind, namespace: str, name: str, status: Mapping[str, Any], *, field_manager: str
    ) -> dict[str, Any]:
        """Replaces the part of the status that the manager owns."""

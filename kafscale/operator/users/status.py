"""A KafscaleUser's status, written and parsed. Pure. It has no secret in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kafscale.operator import cluster_resources


class Reason(StrEnum):
    """The condition's reason. docs/kubernetes-users.md says what to do about each."""

    AS_DECLARED = "AsDeclared"
    INVALID_SPEC = cluster_resources.INVALID_SPEC
    NAMED_TWICE = "UserNamedTwice"
    SECRET_TAKEN = "SecretTaken"
    NOT_DONE_YET = "NotDoneYet"
    DELETING = "Deleting"
    CLUSTER_NOT_FOUND = cluster_resources.CLUSTER_NOT_FOUND
    CLUSTER_INVALID = cluster_resources.CLUSTER_INVALID
    CLUSTER_BEING_DELETED = cluster_resources.CLUSTER_BEING_DELETED
    SECRET_MISSING = cluster_resources.SECRET_MISSING
    AUTHORITY_MISSING = "ClientAuthorityMissing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A resource's user as recorded in its status. `principal` None: the resource was never carried out.

    `secret`: the Secret's name; `applied`: the parts that the resource set.
    """

    principal: str | None = None
    secret: str | None = None
    applied: frozenset[str] = frozenset()

    @classmethod
    def of_status(cls, status: Mapping[str, Any]) -> "Known":
        """Parses a status."""
        return cls(
            principal=status.get("principal"),
            secret=status.get("secret"),
            applied=frozenset(status.get("applied", ())),
        )

    def fields(self) -> dict[str, Any]:
        """The status fields."""
        if self.principal is None:
            return {}
        found: dict[str, Any] = {"principal": self.principal, "applied": sorted(self.applied)}
        if self.secret is not None:
            found["secret"] = self.secret
        return found

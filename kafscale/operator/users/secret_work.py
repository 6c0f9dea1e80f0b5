"""Keeps the Secret with a user's credentials as its plan says."""

from datetime import datetime
from typing import Any

from kafscale.operator.certificates import CA, KeyPair, read_pair
from kafscale.operator.cluster_resources import Manifest, cluster_name
from kafscale.operator.kube.kinds import SECRET
from kafscale.operator.kube.roles import Applies
from kafscale.operator.manifests import names
from kafscale.operator.stores.cluster_connection import NotReadyError
from kafscale.operator.stores.metadata_access import SecretError, secret_data
from kafscale.operator.users.secret_plan import (
    PASSWORD,
    SecretPlan,
    foreign_secret,
    must_rotate,
    password_text,
    plan_certificate,
    plan_password,
    secret_manifest,
)
from kafscale.operator.users.spec import Authentication, SecretKey, UserSpec
from kafscale.operator.users.status import Reason


class SecretTakenError(Exception):
    """Something else has the name of the user's Secret; the message says so."""


class UserSecret:
    """The Secret of one user. Methods raise `KubeError`, `SecretError` and `SecretTakenError`."""

    def __init__(self, api: Applies, resource: Manifest) -> None:
        self._api = api
        self._resource = resource
        self._namespace: str = resource["metadata"]["namespace"]
        self._name: str = resource["metadata"]["name"]

    async def keep(self, wanted: UserSpec, now: datetime) -> tuple[bytes | None, str | None]:
        """Writes the Secret if it has to change; returns the password, if any, and what was done, for events.

        Raises `NotReadyError` without the cluster's client authority, `SpecError` for an illegal password.
        """
        given = await self._given_password(wanted.password)
        found = await self._found()
        plan = await self._plan(wanted, found, given, now)
        is_rotated = found is not None and must_rotate(self._resource, found)
        if plan.change is not None or is_rotated:
            await self._api.apply(secret_manifest(self._resource, plan))
        return plan.data.get(PASSWORD), plan.change

    async def empty(self) -> bool:
        """Empties the Secret of a user that needs none any more; False if there was nothing of its own in it.

        It is deleted with its user: the operator has no right to delete Secrets.
        """
        found = await self._api.find(SECRET, self._namespace, self._name)
        if found is None or not found.get("data") or foreign_secret(self._resource, found) is not None:
            return False
        await self._api.apply(secret_manifest(self._resource, SecretPlan(data={}, change=None)))
        return True

    async def _found(self) -> Manifest | None:
        found = await self._api.find(SECRET, self._namespace, self._name)
        if found is not None:
            problem = foreign_secret(self._resource, found)
            if problem is not None:
                raise SecretTakenError(problem)
        return found

    async def _plan(
        self, wanted: UserSpec, found: Manifest | None, given: bytes | None, now: datetime
    ) -> SecretPlan:
        data = None if found is None else secret_data(found)
        rotate = found is not None and must_rotate(self._resource, found)
        if wanted.authentication is not Authentication.TLS:
            return plan_password(wanted, data, given, rotate=rotate)
        authority, trusted = await self._authority()
        return plan_certificate(wanted, self._name, data, authority, trusted, now, rotate=rotate)

    async def _given_password(self, reference: SecretKey | None) -> bytes | None:
        if reference is None:
            return None
        found = await self._api.find(SECRET, self._namespace, reference.secret)
        if found is None:
            raise SecretError(f"there is no Secret {reference.secret} in namespace {self._namespace}")
        password = secret_data(found).get(reference.key)
        if password is None:
            raise SecretError(
                f"the Secret {reference.secret} in namespace {self._namespace} has no {reference.key}"
            )
        password_text(password)
        return password

    async def _authority(self) -> tuple[KeyPair, bytes]:
        """The cluster's client authority, and all authorities that its brokers accept."""
        cluster = cluster_name(self._resource)
        name = names.client_authority(cluster)
        found: dict[str, Any] | None = await self._api.find(SECRET, self._namespace, name)
        data = {} if found is None else secret_data(found)
        pair = read_pair(data)
        if pair is None:
            raise NotReadyError(
                Reason.AUTHORITY_MISSING,
                f"the cluster {cluster} has no client authority (the Secret {name}): its brokers have no listener "
                "for client certificates, or the operator has not made it yet",
            )
        return pair, data.get(CA, pair.certificate)

"""Plans the Secret with a user's credentials. Pure but for randomness.

A generated password and certificate stay until they are rotated, or near their expiry; a given password is copied.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from kafscale.operator import api_names
from kafscale.operator.certificates import CA, KeyPair, encoded, is_current, issue, read_pair
from kafscale.operator.cluster_resources import Resource, cluster_name
from kafscale.operator.errors import SpecError
from kafscale.operator.users.spec import UserSpec

PASSWORD: Final = "password"
JAAS_CONFIG: Final = "sasl.jaas.config"
USER_CERTIFICATE: Final = "user.crt"
USER_KEY: Final = "user.key"
COMPONENT: Final = "user"

MAX_PASSWORD_CHARACTERS: Final = 1024
_PASSWORD_BYTES: Final = 24
_LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretPlan:
    """The Secret's content. `change`: what is done to it, for events; None if it is as it should be."""

    data: Mapping[str, bytes] = field(repr=False)
    change: str | None


def plan_password(
    wanted: UserSpec, found: Mapping[str, bytes] | None, given: bytes | None, *, rotate: bool
) -> SecretPlan:
    """The Secret of a SCRAM user. `found`: the data of the existing one; `given`: the password from another Secret.

    Raises `SpecError` if a password cannot be one.
    """
    held = None if found is None else found.get(PASSWORD)
    if given is not None:
        password = given
    elif held is None or rotate:
        password = secrets.token_urlsafe(_PASSWORD_BYTES).encode()
    else:
        password = held
    data = {PASSWORD: password, JAAS_CONFIG: _jaas_config(wanted.name, password_text(password)).encode()}
    return SecretPlan(data=data, change=_change(found, data, PASSWORD, rotate=rotate and given is None))


def password_text(password: bytes) -> str:
    """A password as text. Raises `SpecError`, which does not quote it."""
    try:
        text = password.decode()
    except UnicodeDecodeError:
        raise SpecError("the password is not text in UTF-8") from None
    if not text or len(text) > MAX_PASSWORD_CHARACTERS or not text.isprintable():
        raise SpecError(
            f"the password must be 1 to {MAX_PASSWORD_CHARACTERS} printable characters, without a line break"
        )
    return text


def plan_certificate(
    wanted: UserSpec,
    common_name: str,
    found: Mapping[str, bytes] | None,
    authority: KeyPair,
    trusted: bytes,
    now: datetime,
    *,
    rotate: bool,
) -> SecretPlan:
    """The Secret of a user with a certificate. `trusted`: the authorities that brokers accept, PEM; `now`: aware."""
    pair = read_pair(found or {}, USER_CERTIFICATE, USER_KEY)
    if pair is None or rotate or not is_current(pair, authority, (), now):
        pair = issue(authority, common_name, (), now)
    data = {USER_CERTIFICATE: pair.certificate, USER_KEY: pair.key, CA: trusted}
    return SecretPlan(data=data, change=_change(found, data, USER_CERTIFICATE, rotate=rotate))


def _change(
    found: Mapping[str, bytes] | None, data: Mapping[str, bytes], main: str, *, rotate: bool
) -> str | None:
    if found == data:
        return None
    if found is None:
        return "created"
    if rotate:
        return "rotated"
    return "completed" if found.get(main) == data[main] else "renewed"


def _jaas_config(name: str, password: str) -> str:
    return f"{_LOGIN_MODULE} required username={_quoted(name)} password={_quoted(password)};"


def _quoted(text: str) -> str:
    """As the configuration of JAAS quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def wanted_rotation(resource: Resource) -> str | None:
    """The resource's annotation that asks for a rotation."""
    text = resource["metadata"].get("annotations", {}).get(api_names.ROTATE)
    return None if text is None else str(text)


def must_rotate(resource: Resource, secret: Mapping[str, Any]) -> bool:
    """True if the annotation has a value for which the Secret was not rotated: each value works once."""
    wanted = wanted_rotation(resource)
    return wanted is not None and wanted != secret["metadata"].get("annotations", {}).get(api_names.ROTATE)


def secret_manifest(resource: Resource, plan: SecretPlan) -> Manifest:
    """The Secret, which is deleted with its user. It says for which annotation it was rotated."""
    metadata, rotation = resource["metadata"], wanted_rotation(resource)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": api_names.labels(cluster_name(resource), COMPONENT),
            **({} if rotation is None else {"annotations": {api_names.ROTATE: rotation}}),
            "ownerReferences": [_reference(resource)],
        },
        "type": "Opaque",
        "data": encoded(plan.data),
    }


def foreign_secret(resource: Resource, found: Mapping[str, Any]) -> str | None:
    """Why an existing Secret must not be written; None if it is this user's."""
    metadata = found["metadata"]
    if any(each["uid"] == resource["metadata"]["uid"] for each in metadata.get("ownerReferences", ())):
        return None
    labels = metadata.get("labels", {})
    wanted = api_names.labels(cluster_name(resource), COMPONENT)
    if all(labels.get(name) == value for name, value in wanted.items()):
        return None  # of an earlier resource of this name
    return (
        f"the Secret {metadata['name']} is there already and was not made for this user: rename the user, or remove "
        "that Secret"
    )


def _reference(resource: Resource) -> Manifest:
    return {
        "apiVersion": api_names.API_VERSION,
        "kind": api_names.USER,
        "name": resource["metadata"]["name"],
        "uid": resource["metadata"]["uid"],
        "controller": True,
    }

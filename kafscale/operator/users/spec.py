"""A KafscaleUser's specification."""

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from kafscale.formats.acl_record import AclBinding, problem_of
from kafscale.formats.user_record import MAX_NAME_CHARACTERS, ScramMechanism
from kafscale.operator.cluster_resources import Resource
from kafscale.operator.errors import SpecError
from kafscale.protocol.acl_codes import (
    CLUSTER_NAME,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from kafscale.security.principal import USER, Principal


class Authentication(StrEnum):
    """How a user logs in."""

    SCRAM_SHA_512 = "scram-sha-512"
    SCRAM_SHA_256 = "scram-sha-256"
    TLS = "tls"
    TLS_EXTERNAL = "tls-external"

    @property
    def mechanism(self) -> ScramMechanism | None:
        """The SCRAM mechanism, None for certificates."""
        return _MECHANISMS.get(self)


_MECHANISMS: Final = {
    Authentication.SCRAM_SHA_512: ScramMechanism.SCRAM_SHA_512,
    Authentication.SCRAM_SHA_256: ScramMechanism.SCRAM_SHA_256,
}
_CERTIFICATES: Final = (Authentication.TLS, Authentication.TLS_EXTERNAL)

_RESOURCE_TYPES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactionalId": ResourceType.TRANSACTIONAL_ID,
}
_PATTERN_TYPES: Final = {"literal": PatternType.LITERAL, "prefix": PatternType.PREFIXED}
_PERMISSIONS: Final = {"allow": Permission.ALLOW, "deny": Permission.DENY}
_OPERATIONS: Final = {
    "All": Operation.ALL,
    "Read": Operation.READ,
    "Write": Operation.WRITE,
    "Create": Operation.CREATE,
    "Delete": Operation.DELETE,
    "Alter": Operation.ALTER,
    "Describe": Operation.DESCRIBE,
    "DescribeConfigs": Operation.DESCRIBE_CONFIGS,
    "AlterConfigs": Operation.ALTER_CONFIGS,
    "ClusterAction": Operation.CLUSTER_ACTION,
    "IdempotentWrite": Operation.IDEMPOTENT_WRITE,
}
_LEGAL: Final = {
    ResourceType.TOPIC: frozenset(
        {"Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs", "All"}
    ),
    ResourceType.GROUP: frozenset({"Read", "Delete", "Describe", "DescribeConfigs", "AlterConfigs", "All"}),
    ResourceType.CLUSTER: frozenset(
        {"Create", "Alter", "Describe", "DescribeConfigs", "AlterConfigs", "ClusterAction"}
        | {"IdempotentWrite", "All"}
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({"Write", "Describe", "All"}),
}
"""As in Kafka's AclEntry.supportedOperations."""

_QUOTAS: Final = {
    "producerByteRate": "producer_byte_rate",
    "consumerByteRate": "consumer_byte_rate",
    "requestPercentage": "request_percentage",
    "controllerMutationRate": "controller_mutation_rate",
}
QUOTA_NAMES: Final = frozenset(_QUOTAS.values())
"""Kafka's names of the quotas that a resource may name."""


@dataclass(frozen=True, slots=True)
class SecretKey:
    """One key of a Secret."""

    secret: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSpec:
    """The desired state of one user. `name`: as in its principal.

    `authentication` None: not kept here. `rules` and `quotas` None: likewise; otherwise all that the user has.
    """

    cluster: str
    name: str
    authentication: Authentication | None
    password: SecretKey | None = None
    rules: frozenset[AclBinding] | None = None
    quotas: Mapping[str, float] | None = None

    @property
    def principal(self) -> Principal:
        """The user's principal."""
        return Principal(USER, self.name)

    @property
    def mechanism(self) -> ScramMechanism | None:
        """The SCRAM mechanism, if any."""
        return None if self.authentication is None else self.authentication.mechanism

    @property
    def has_secret(self) -> bool:
        """True if the operator keeps a Secret for the user."""
        return self.authentication not in (None, Authentication.TLS_EXTERNAL)


def user_name(resource: Resource) -> str:
    """Name of a KafscaleUser's user in Kafka."""
    spec, name = resource["spec"], resource["metadata"]["name"]
    if "userName" in spec:
        return str(spec["userName"])
    authentication = spec.get("authentication")
    return f"CN={name}" if authentication and authentication["type"] in _CERTIFICATES else str(name)


def user_spec(resource: Resource) -> UserSpec:
    """Parses a resource, with defaults filled in. Raises `SpecError`."""
    spec, name = resource["spec"], user_name(resource)
    if len(name) > MAX_NAME_CHARACTERS or name == WILDCARD:
        raise SpecError(f"userName={name[:80]!r} is not a user's name")
    authentication = spec.get("authentication")
    principal = str(Principal(USER, name))
    return UserSpec(
        cluster=spec["clusterRef"]["name"],
        name=name,
        authentication=None if authentication is None else Authentication(authentication["type"]),
        password=None if authentication is None else _password(authentication),
        rules=frozenset(_rules(principal, spec["authorization"]["acls"]))
        if "authorization" in spec
        else None,
        quotas={_QUOTAS[key]: float(value) for key, value in spec["quotas"].items()}
        if "quotas" in spec
        else None,
    )


def _password(authentication: Mapping[str, Any]) -> SecretKey | None:
    if "password" not in authentication:
        return None
    reference = authentication["password"]["valueFrom"]["secretKeyRef"]
    return SecretKey(reference["name"], reference["key"])


def _rules(principal: str, acls: list[Mapping[str, Any]]) -> Iterator[AclBinding]:
    for number, acl in enumerate(acls):
        where = f"authorization.acls[{number}]"
        resource = acl["resource"]
        kind = _RESOURCE_TYPES[resource["type"]]
        for operation in acl["operations"]:
            if operation not in _LEGAL[kind]:
                raise SpecError(
                    f"{where}.operations: {operation} is not an operation of the type {resource['type']}; legal are "
                    + ", ".join(sorted(_LEGAL[kind]))
                )
            binding = AclBinding(
                resource_type=kind,
                pattern_type=_PATTERN_TYPES[resource.get("patternType", "literal")],
                name=CLUSTER_NAME if kind is ResourceType.CLUSTER else resource["name"],
                principal=principal,
                host=_host(where, acl.get("host", WILDCARD)),
                operation=_OPERATIONS[operation],
                permission=_PERMISSIONS[acl.get("type", "allow")],
            )
            problem = problem_of(binding)
            if problem is not None:
                raise SpecError(f"{where}: {problem}")
            yield binding


def _host(where: str, host: str) -> str:
    """The host as the broker compares it: addresses have one text each."""
    if host == WILDCARD:
        return host
    try:
        return str(ipaddress.ip_network(host) if "/" in host else ipaddress.ip_address(host))
    except ValueError as problem:
        raise SpecError(
            f"{where}.host={host!r} is neither an address, a network nor *: {problem}"
        ) from problem

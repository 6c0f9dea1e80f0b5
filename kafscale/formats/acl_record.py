"""Access rules as values and as stored keys (Kafka's ACL bindings, KIP-140, KIP-290).

Stored format: docs/format/metadata.md. A rule is its key, so that creating and deleting one are writes that read
nothing, and twice the same is once. The value has only a version.
"""

import ipaddress
import re
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from kafscale.errors import CorruptDataError
from kafscale.formats.topic_record import decode_fields, encode_fields
from kafscale.metadata import keys
from kafscale.protocol.acl_codes import (
    CLUSTER_NAME,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

MAX_KEY_CHARACTERS: Final = 4096
"""Of a stored rule, after percent-encoding."""

ANY_USER: Final = "User:*"
"""The principal of a rule for every user."""

STORED_ACL: Final = encode_fields({})
"""The value of every rule."""

_Code = TypeVar("_Code", bound=IntEnum)

_CODES_OF_FILTERS: Final = frozenset({"UNKNOWN", "ANY", "MATCH"})


def _texts(codes: type[_Code]) -> dict[str, _Code]:
    return {code.name.lower(): code for code in codes if code.name not in _CODES_OF_FILTERS}


_RESOURCE_TYPES: Final = _texts(ResourceType)
_PATTERN_TYPES: Final = _texts(PatternType)
_OPERATIONS: Final = _texts(Operation)
_PERMISSIONS: Final = _texts(Permission)


class AclBinding(NamedTuple):
    """A rule: `principal` may do `operation` with the resources that the pattern names, or must not.

    `principal`: Kafka's text form, `User:alice`; `User:*` is every user. `host`: an address as text, a network in
    CIDR form, or `*`. `name`: of the resource, or its prefix, or `*`. A tuple, because a broker may have a million.
    """

    resource_type: ResourceType
    pattern_type: PatternType
    name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission


# A key in which nothing has to be decoded, as most are: a million are read at a start.
_PLAIN_KEY: Final = re.compile(
    r"acls/[a-z_]+/[a-z]+/[A-Za-z0-9._~*-]+/[A-Za-z0-9._~*:-]+/[0-9a-f.:*]+/[a-z_]+/[a-z]+"
)

_PART_COUNT: Final = len(AclBinding._fields)


def acl_key(binding: AclBinding) -> str:
    """The key under which the rule is stored."""
    return keys.acl(*(part.name.lower() if isinstance(part, IntEnum) else part for part in binding))


def problem_of(binding: AclBinding) -> str | None:
    """The reason why this cannot be a rule, as text for people; None for a rule. As in Kafka's AclControlManager."""
    for what, code in (
        ("resourceType", binding.resource_type),
        ("patternType", binding.pattern_type),
        ("operation", binding.operation),
        ("permissionType", binding.permission),
    ):
        if code.name in _CODES_OF_FILTERS:
            return f"Invalid {what} {code.name}"
    problem = _problem_of_texts(binding)
    if problem is None and len(acl_key(binding)) > MAX_KEY_CHARACTERS:
        problem = f"The rule takes more than {MAX_KEY_CHARACTERS} characters"
    return problem


def _problem_of_texts(binding: AclBinding) -> str | None:
    if not binding.name:
        return "Resource name should not be empty"
    if binding.resource_type is ResourceType.CLUSTER and binding.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not _is_principal(binding.principal):
        return (
            "Could not parse principal: it must be a type and a name with a colon between, as in User:alice"
        )
    return _problem_of_host(binding.host)


def _is_principal(text: str) -> bool:
    kind, colon, name = text.partition(":")
    return bool(kind and colon and name)


def _problem_of_host(host: str) -> str | None:
    if not host:
        return "Host should not be empty"
    if "/" not in host:
        return None
    try:
        network = ipaddress.ip_network(host, strict=False)
    except ValueError:
        return "Host is no network: it must be an address, a slash and a number of bits, as in 10.1.0.0/16"
    # One text for each network: rules are compared by their text.
    return None if str(network) == host else f"The network has to be written as {network}"


def decode_acl(key: str, value: bytes) -> AclBinding:
    """The rule with this key. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    if value != STORED_ACL:
        decode_fields(key, value)
    is_plain = _PLAIN_KEY.fullmatch(key) is not None
    parts = key.split("/")[1:] if is_plain else keys.acl_parts(key)
    if len(parts) != _PART_COUNT:
        raise CorruptDataError(key, f"it has {len(parts)} parts, not {_PART_COUNT}")
    resource_type, pattern, name, principal, host, operation, permission = parts
    try:
        binding = AclBinding(
            _RESOURCE_TYPES[resource_type],
            _PATTERN_TYPES[pattern],
            name,
            principal,
            host,
            _OPERATIONS[operation],
            _PERMISSIONS[permission],
        )
    except KeyError as unknown:
        raise CorruptDataError(key, f"it has a code that this release does not know: {unknown}") from unknown
    problem = _problem_of_texts(binding)
    if problem is None and not is_plain and acl_key(binding) != key:
        problem = f"its key should be {acl_key(binding)!r}"
    if problem is not None:
        raise CorruptDataError(key, problem)
    return binding


def denial_of(key: str) -> AclBinding | None:
    """The rule that stands in for one that `decode_acl` refuses: it denies all that the stored one might deny.

    What cannot be read counts as everything. None for a rule that allows, whose loss allows nothing, and for one
    of a resource type that this release does not have.
    """
    encoded = key.removeprefix(keys.ACLS).split("/")
    # Text that is not encoded as keys.acl does it may mean another name: it counts as not readable.
    parts = [
        part if keys.acl(part) == keys.ACLS + encoded[i] else "" for i, part in enumerate(keys.acl_parts(key))
    ]
    if len(parts) != _PART_COUNT:
        parts = [parts[0], *[""] * (_PART_COUNT - 1)]
    resource_type, pattern, name, principal, host, operation, permission = parts
    if resource_type not in _RESOURCE_TYPES or permission == Permission.ALLOW.name.lower():
        return None
    if pattern not in _PATTERN_TYPES or not name:
        pattern, name = "literal", WILDCARD
    denial = AclBinding(
        _RESOURCE_TYPES[resource_type],
        _PATTERN_TYPES[pattern],
        name,
        principal if _is_principal(principal) else ANY_USER,
        host if _problem_of_host(host) is None else WILDCARD,
        _OPERATIONS.get(operation, Operation.ALL),
        Permission.DENY,
    )
    return denial if problem_of(denial) is None else denial._replace(name=CLUSTER_NAME)

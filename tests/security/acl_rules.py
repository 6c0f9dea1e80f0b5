"""Access rules as tests write them, and a naive authorizer that decides by reading all of them."""

import ipaddress
from collections.abc import Collection

from kafscale.formats.acl_record import ANY_USER, AclBinding
from kafscale.protocol.acl_codes import WILDCARD, Operation, PatternType, Permission, ResourceType
from kafscale.protocol.api_keys import ApiKey
from kafscale.security.acl_index import AclIndex
from kafscale.security.authorizer import Authorizer
from kafscale.security.principal import Principal, parse_principal

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP

HOST = "192.0.2.7"
"""Of a client, where a test says nothing else."""

Refusal = tuple[str, str, Operation, ResourceType, str | None]


def rule(
    resource_type: ResourceType,
    name: str,
    pattern: PatternType,
    principal: str,
    host: str,
    operation: Operation,
    permission: Permission,
) -> AclBinding:
    """A rule in the order of the arguments of Kafka's StandardAcl."""
    return AclBinding(resource_type, pattern, name, principal, host, operation, permission)


class Refusals:
    """Collects what an authorizer reports."""

    def __init__(self) -> None:
        self.seen: list[Refusal] = []
        self.requests: list[ApiKey | None] = []

    def refused(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str | None,
        api: ApiKey | None,
    ) -> None:
        """See `RefusalReport`."""
        self.requests.append(api)
        self.seen.append((str(principal), host, operation, resource_type, name))


def authorizer(
    *rules: AclBinding,
    super_users: Collection[str] = ("User:superman",),
    allow_if_no_acl: bool = False,
    report: Refusals | None = None,
) -> Authorizer:
    """An authorizer that has read these rules."""
    index = AclIndex()
    for one in rules:
        index.add(one)
    made = Authorizer(super_users, report or Refusals(), allow_if_no_acl=allow_if_no_acl)
    made.replace(index, AclIndex())
    return made


def allows(
    of: Authorizer, user: str, operation: Operation, kind: ResourceType, name: str, host: str = HOST
) -> bool:
    """The decision for `User:{user}`."""
    return of.access(parse_principal(f"User:{user}"), host).allows(operation, kind, name)


def naive_decision(
    rules: Collection[AclBinding],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    *,
    allow_if_no_acl: bool = False,
) -> bool:
    """Kafka's rules of decision, one rule after another."""
    about = [one for one in rules if one.resource_type is kind and _fits(one, name)]
    if not about:
        return allow_if_no_acl
    mine = [one for one in about if one.principal in (principal, ANY_USER) and _is_at(one.host, host)]
    if any(one.permission is DENY and one.operation in (operation, Operation.ALL) for one in mine):
        return False
    enough = {operation, Operation.ALL}
    if operation is Operation.DESCRIBE:
        enough |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation is Operation.DESCRIBE_CONFIGS:
        enough.add(Operation.ALTER_CONFIGS)
    return any(one.permission is ALLOW and one.operation in enough for one in mine)


def _fits(one: AclBinding, name: str) -> bool:
    if one.pattern_type is PREFIXED:
        return name.startswith(one.name)
    return one.name in (name, WILDCARD)


def _is_at(pattern: str, host: str) -> bool:
    if "/" in pattern:
        return ipaddress.ip_address(host) in ipaddress.ip_network(pattern)
    return pattern in (host, WILDCARD)

"""Decisions by access rules (Kafka's StandardAuthorizer): who may do which operations with which resource.

Theory of operation. For a principal at an address and a resource, all rules are looked up once, and every operation
that they allow becomes one number, which is kept (`Rights`) until any rule changes. A question is then a dictionary
lookup and a shift. Rules that deny come before rules that allow; a client that no rule allows is refused.
"""

import weakref
from collections.abc import Collection
from typing import Final, Protocol

from kafscale.formats.acl_record import ANY_USER
from kafscale.protocol.acl_codes import IMPLIED_BY, WILDCARD, Operation, PatternType, ResourceType
from kafscale.protocol.api_keys import ApiKey
from kafscale.security.access import EVERY_OPERATION
from kafscale.security.acl_index import AclIndex
from kafscale.security.principal import Principal

MAX_KEPT_DECISIONS: Final = 100_000
"""Of all principals together; past it all are dropped."""

MAX_KEPT_NAME_CHARACTERS: Final = 249
"""As long as a topic's name may be: longer names, which clients can have without end, are decided each time."""

_ALL: Final = 1 << Operation.ALL
_IMPLYING: Final = tuple(
    (1 << implied, sum(1 << operation for operation in operations))
    for implied, operations in IMPLIED_BY.items()
)


class RefusalReport(Protocol):
    """Receives each refusal."""

    def refused(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str | None,
        api: ApiKey | None,
    ) -> None:
        """The client must not do this. `name`: None for any resource of the type. `api`: of its request."""


class Authorizer:
    """The rules of a cluster and what follows from them. Every method belongs to the event loop's thread.

    `super_users`: principals as text, who may do everything. `allow_if_no_acl`: with resources that no rule is
    about, every client may do everything (Kafka's `allow.everyone.if.no.acl.found`). Until `replace` has been called
    only super users may.
    """

    def __init__(
        self, super_users: Collection[str], report: RefusalReport, *, allow_if_no_acl: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._report = report
        self._indexes: tuple[AclIndex, ...] | None = None
        self._rights: weakref.WeakValueDictionary[tuple[Principal, str], Rights] = (
            weakref.WeakValueDictionary()
        )
        self._kept_count = 0

    def access(self, principal: Principal, host: str) -> "Rights":
        """The rights of the principal at the address: an `AccessFactory`."""
        rights = self._rights.get((principal, host))
        if rights is None:
            rights = Rights(self, principal, host, self._report)
            self._rights[principal, host] = rights
        return rights

    def replace(self, *indexes: AclIndex) -> None:
        """From now on these are the rules; call `changed` when one of them changes."""
        self._indexes = indexes
        self.changed()

    def changed(self) -> None:
        """Forget every decision: rules have changed."""
        self._kept_count = 0
        for rights in list(self._rights.values()):
            rights.forget()

    def keep_one(self) -> None:
        """Count one more kept decision; forgets all when there are too many."""
        if self._kept_count >= MAX_KEPT_DECISIONS:
            self.changed()
        self._kept_count += 1

    def hosts_of(self, host: str) -> tuple[str, ...]:
        """The texts by which rules may name the address."""
        return tuple(dict.fromkeys(text for index in self._indexes or () for text in index.hosts_of(host)))

    def operations(
        self, principal: Principal, hosts: tuple[str, ...], resource_type: ResourceType, name: str
    ) -> int:
        """The operations that the client may do with the resource: bit n for the operation with code n."""
        text = str(principal)
        if text in self._super_users:
            return EVERY_OPERATION
        if self._indexes is None:
            return 0
        allowed = denied = 0
        are_any = False
        for index in self._indexes:
            rules = index.find((text, ANY_USER), hosts, resource_type, name)
            if rules is not None:
                are_any = True
                allowed |= rules.allowed
                denied |= rules.denied
        if not are_any:
            return EVERY_OPERATION if self._allow_if_no_acl else 0
        if denied & _ALL:
            return 0
        return _with_implied(allowed) & ~denied

    def allows_any(
        self,
        principal: Principal,
        hosts: tuple[str, ...],
        operation: Operation,
        resource_type: ResourceType,
    ) -> bool:
        """As Kafka's authorizeByResourceType (KIP-679): a rule allows it, and no rule that denies covers that one."""
        # As Kafka, which asks for this name: who may do everything has no rules.
        if self.operations(principal, hosts, resource_type, "hardcode") >> operation & 1:
            return True
        if self._indexes is None:
            return False
        asked = (str(principal), ANY_USER), hosts, resource_type, 1 << operation | _ALL
        denied = {pattern for index in self._indexes for pattern in index.patterns_denied(*asked)}
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(
            not _is_covered(*pattern, denied)
            for index in self._indexes
            for pattern in index.patterns_allowed(*asked)
        )


class _Decisions:
    """Decisions for one principal at one address, which hold until any rule changes.

    `hosts`: the texts by which rules may name the address. `kept`: operations by type of resource and name.
    """

    __slots__ = ("any", "hosts", "kept")

    def __init__(self) -> None:
        self.hosts: tuple[str, ...] | None = None
        self.kept: tuple[dict[str, int], ...] = tuple({} for _ in ResourceType)
        self.any: dict[tuple[int, int], bool] = {}


class Rights:
    """The access of one principal at one address (`Access`); all its connections and requests share its decisions."""

    __slots__ = (
        "__weakref__",
        "_api",
        "_authorizer",
        "_decisions",
        "_in_requests",
        "_kept",
        "_report",
        "host",
        "principal",
    )

    is_restricted: Final = True

    def __init__(
        self,
        authorizer: Authorizer,
        principal: Principal,
        host: str,
        report: RefusalReport,
        *,
        api: ApiKey | None = None,
        decisions: _Decisions | None = None,
    ) -> None:
        """`api`: of the request that asks. `decisions`: those of the same principal and host."""
        self.principal = principal
        self.host = host
        self._authorizer = authorizer
        self._report = report
        self._api = api
        self._decisions = decisions or _Decisions()
        self._kept = self._decisions.kept
        self._in_requests: dict[ApiKey, Rights] = {}

    def in_request(self, api: ApiKey) -> "Rights":
        """See `Access`."""
        rights = self._in_requests.get(api)
        if rights is None:
            rights = Rights(
                self._authorizer, self.principal, self.host, self._report, api=api, decisions=self._decisions
            )
            self._in_requests[api] = rights
        return rights

    def allows(
        self, operation: Operation, resource_type: ResourceType, name: str, *, quiet: bool = False
    ) -> bool:
        """See `Access`."""
        operations = self._kept[resource_type].get(name)
        if operations is None:
            operations = self._find(resource_type, name)
        if operations >> operation & 1:
            return True
        if not quiet:
            self._report.refused(self.principal, self.host, operation, resource_type, name, self._api)
        return False

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """See `Access`."""
        key = int(operation), int(resource_type)
        allowed = self._decisions.any.get(key)
        if allowed is None:
            allowed = self._authorizer.allows_any(self.principal, self._texts(), operation, resource_type)
            self._decisions.any[key] = allowed
        if not allowed:
            self._report.refused(self.principal, self.host, operation, resource_type, None, self._api)
        return allowed

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """See `Access`."""
        operations = self._kept[resource_type].get(name)
        return self._find(resource_type, name) if operations is None else operations

    def forget(self) -> None:
        """Forget every decision."""
        self._decisions.hosts = None
        self._decisions.any.clear()
        for kept in self._kept:
            kept.clear()

    def _texts(self) -> tuple[str, ...]:
        decisions = self._decisions
        if decisions.hosts is None:
            decisions.hosts = self._authorizer.hosts_of(self.host)
        return decisions.hosts

    def _find(self, resource_type: ResourceType, name: str) -> int:
        operations = self._authorizer.operations(self.principal, self._texts(), resource_type, name)
        if len(name) <= MAX_KEPT_NAME_CHARACTERS:
            self._authorizer.keep_one()
            self._kept[resource_type][name] = operations
        return operations


def _with_implied(allowed: int) -> int:
    if allowed & _ALL:
        return EVERY_OPERATION
    for implied, implying in _IMPLYING:
        if allowed & implying:
            allowed |= implied
    return allowed


def _is_covered(pattern: PatternType, name: str, denied: Collection[tuple[PatternType, str]]) -> bool:
    """True if a rule that denies covers all that the pattern fits."""
    if pattern is PatternType.LITERAL and (pattern, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))

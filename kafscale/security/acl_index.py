"""Access rules in memory, arranged so that a question takes dictionary lookups only, however many there are. Pure.

Rules of one principal, resource pattern and host are one number: a bit for each operation that they allow, and above
those a bit for each that they deny. A million rules take some 350 MB.
"""

import ipaddress
from collections import Counter
from collections.abc import Iterator
from typing import Final, TypeVar

from kafscale.formats.acl_record import AclBinding
from kafscale.protocol.acl_codes import WILDCARD, Operation, PatternType, Permission, ResourceType

_DENY_SHIFT: Final = 16
_ALLOWED: Final = (1 << _DENY_SHIFT) - 1
_PATTERN_TYPES: Final = 8
"""A section is a resource type and a pattern type as one small number."""

_Counted = TypeVar("_Counted")

Pattern = tuple[int, str, str]
"""Section, resource name, host."""


class Rules:
    """The rules that match one question: bits of the operations that they allow, and deny, as they are stored."""

    __slots__ = ("allowed", "denied")

    def __init__(self, mask: int) -> None:
        self.allowed, self.denied = mask & _ALLOWED, mask >> _DENY_SHIFT


class AclIndex:
    """A set of rules."""

    def __init__(self) -> None:
        self.rule_count = 0
        self._masks: dict[str, dict[Pattern, int]] = {}
        # How many entries of `_masks` have the name, by section.
        self._names: dict[int, dict[str, int]] = {}
        self._prefix_lengths: dict[ResourceType, Counter[int]] = {}
        self._networks: Counter[str] = Counter()
        self._network_sizes: Counter[tuple[int, int]] = Counter()

    def add(self, rule: AclBinding) -> bool:
        """Returns False if it is there already."""
        pattern, bit = _pattern(rule), _bit(rule)
        masks = self._masks.get(rule.principal)
        if masks is None:
            masks = self._masks[rule.principal] = {}
        mask = masks.get(pattern, 0)
        if mask & bit:
            return False
        masks[pattern] = mask | bit
        self.rule_count += 1
        if not mask:
            self._add_name(rule, pattern[0])
        return True

    def remove(self, rule: AclBinding) -> bool:
        """Returns False if it is not there."""
        pattern, bit = _pattern(rule), _bit(rule)
        masks = self._masks.get(rule.principal, {})
        mask = masks.get(pattern, 0)
        if not mask & bit:
            return False
        self.rule_count -= 1
        if mask != bit:
            masks[pattern] = mask & ~bit
            return True
        del masks[pattern]
        if not masks:
            del self._masks[rule.principal]
        self._remove_name(rule, pattern[0])
        return True

    def hosts_of(self, address: str) -> tuple[str, ...]:
        """The texts by which rules may name the client's address: itself, networks, all."""
        texts = [WILDCARD, address]
        try:
            client = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return tuple(texts)
        if isinstance(client, ipaddress.IPv6Address):
            if client.ipv4_mapped is not None:
                return self.hosts_of(str(client.ipv4_mapped))
            # Java's form: each group without leading zeros, none left out.
            texts += [str(client), ":".join(f"{int(group, 16):x}" for group in client.exploded.split(":"))]
        for version, bits in self._network_sizes:
            if version == client.version:
                network = str(ipaddress.ip_network(f"{client}/{bits}", strict=False))
                if network in self._networks:
                    texts.append(network)
        return tuple(dict.fromkeys(texts))

    def find(
        self, principals: tuple[str, ...], hosts: tuple[str, ...], resource_type: ResourceType, name: str
    ) -> Rules | None:
        """The rules for the resource that are about one of `principals` at one of `hosts`.

        None if no rule at all, of any principal, is for the resource.
        """
        patterns = self._patterns_of(resource_type, name)
        if not patterns:
            return None
        mask = 0
        for principal in principals:
            masks = self._masks.get(principal)
            if masks is None:
                continue
            for section, pattern_name in patterns:
                for host in hosts:
                    mask |= masks.get((section, pattern_name, host), 0)
        return Rules(mask)

    def patterns_allowed(
        self, principals: tuple[str, ...], hosts: tuple[str, ...], resource_type: ResourceType, bits: int
    ) -> Iterator[tuple[PatternType, str]]:
        """The patterns of the type that one of `principals` at one of `hosts` is allowed one of the operations for.

        `bits`: bit n for the operation with code n. A walk over the rules of the principals.
        """
        return self._patterns_with(principals, hosts, resource_type, bits)

    def patterns_denied(
        self, principals: tuple[str, ...], hosts: tuple[str, ...], resource_type: ResourceType, bits: int
    ) -> Iterator[tuple[PatternType, str]]:
        """The same for rules that deny."""
        return self._patterns_with(principals, hosts, resource_type, bits << _DENY_SHIFT)

    def _patterns_with(
        self, principals: tuple[str, ...], hosts: tuple[str, ...], resource_type: ResourceType, bits: int
    ) -> Iterator[tuple[PatternType, str]]:
        for principal in principals:
            for (section, name, host), mask in self._masks.get(principal, {}).items():
                if mask & bits and section // _PATTERN_TYPES == resource_type and host in hosts:
                    yield PatternType(section % _PATTERN_TYPES), name

    def principals(self) -> tuple[str, ...]:
        """The principals that rules are about."""
        return tuple(self._masks)

    def rules_of(self, principal: str) -> Iterator[AclBinding]:
        """The rules about the principal, as they are now."""
        masks = self._masks.get(principal, {})
        for pattern in tuple(masks):
            mask = masks.get(pattern, 0)
            section, name, host = pattern
            resource_type, pattern_type = divmod(section, _PATTERN_TYPES)
            for shift, permission in ((0, Permission.ALLOW), (_DENY_SHIFT, Permission.DENY)):
                bits = mask >> shift & _ALLOWED
                while bits:
                    operation = Operation((bits & -bits).bit_length() - 1)
                    bits &= bits - 1
                    yield AclBinding(
                        ResourceType(resource_type),
                        PatternType(pattern_type),
                        name,
                        principal,
                        host,
                        operation,
                        permission,
                    )

    def _patterns_of(self, resource_type: ResourceType, name: str) -> list[tuple[int, str]]:
        """The patterns that fit the resource and that any rule has."""
        found = []
        literal = resource_type * _PATTERN_TYPES + PatternType.LITERAL
        names = self._names.get(literal)
        if names:
            found += [(literal, text) for text in (name, WILDCARD) if text in names]
        lengths = self._prefix_lengths.get(resource_type)
        if lengths:
            prefixed = resource_type * _PATTERN_TYPES + PatternType.PREFIXED
            prefixes = self._names[prefixed]
            for length in lengths:
                if length <= len(name) and (prefix := name[:length]) in prefixes:
                    found.append((prefixed, prefix))
        return found

    def _add_name(self, rule: AclBinding, section: int) -> None:
        names = self._names.setdefault(section, {})
        count = names.get(rule.name, 0)
        names[rule.name] = count + 1
        if rule.pattern_type is PatternType.PREFIXED and not count:
            self._prefix_lengths.setdefault(rule.resource_type, Counter())[len(rule.name)] += 1
        if "/" in rule.host:
            self._networks[rule.host] += 1
            self._network_sizes[_size(rule.host)] += 1

    def _remove_name(self, rule: AclBinding, section: int) -> None:
        names = self._names[section]
        names[rule.name] -= 1
        if not names[rule.name]:
            del names[rule.name]
            if rule.pattern_type is PatternType.PREFIXED:
                _count_down(self._prefix_lengths[rule.resource_type], len(rule.name))
        if "/" in rule.host:
            _count_down(self._networks, rule.host)
            _count_down(self._network_sizes, _size(rule.host))


def _pattern(rule: AclBinding) -> Pattern:
    return (rule.resource_type * _PATTERN_TYPES + rule.pattern_type, rule.name, rule.host)


def _bit(rule: AclBinding) -> int:
    return 1 << rule.operation + (_DENY_SHIFT if rule.permission is Permission.DENY else 0)


def _size(network: str) -> tuple[int, int]:
    """The address family and the number of bits of a network in CIDR form."""
    address, _, bits = network.rpartition("/")
    return 6 if ":" in address else 4, int(bits)


def _count_down(counts: Counter[_Counted], item: _Counted) -> None:
    counts[item] -= 1
    if not counts[item]:
        del counts[item]

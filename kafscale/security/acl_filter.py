"""Filters of DescribeAcls and DeleteAcls (Kafka's AclBindingFilter): which rules they mean, and their keys. Pure."""

from typing import NamedTuple

from kafscale.formats.acl_record import AclBinding
from kafscale.metadata import keys
from kafscale.protocol.acl_codes import WILDCARD, Operation, PatternType, Permission, ResourceType


class AclFilter(NamedTuple):
    """None, and codes called ANY, mean all. With pattern type MATCH, `name` is a resource that the rule is for."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str | None
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    @property
    def is_unknown(self) -> bool:
        """True if a code of the filter is not one of Kafka's."""
        return not (self.resource_type and self.pattern_type and self.operation and self.permission)

    def matches(self, rule: AclBinding) -> bool:
        """True if the filter means the rule."""
        return (
            self.resource_type in (ResourceType.ANY, rule.resource_type)
            and self._matches_pattern(rule)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (Permission.ANY, rule.permission)
        )

    def key_prefix(self) -> str:
        """The keys of all rules that the filter means have it."""
        if self.resource_type is ResourceType.ANY:
            return keys.ACLS
        parts = [self.resource_type.name.lower()]
        if self.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
            parts.append(self.pattern_type.name.lower())
            # A host without its principal, or an operation without its host, leaves a gap in the key.
            for part in (self.name, self.principal, self.host):
                if part is None:
                    break
                parts.append(part)
        return keys.acl(*parts) + "/"

    def _matches_pattern(self, rule: AclBinding) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, rule.pattern_type):
            return False
        if self.name is None or self.name == rule.name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if rule.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(rule.name)
        return rule.name == WILDCARD

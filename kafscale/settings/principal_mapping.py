"""From the distinguished name of a client's certificate to the name of its principal, by Kafka's rules.

Source: Apache Kafka's `SslPrincipalMapper` (KIP-371). Patterns are Python's regular expressions where Kafka's are
Java's; those in use are the same in both.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.settings.kinds import ExplainedValueError, Kind

_RULE = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER: Final = re.compile(_RULE)
_REFERENCE: Final = re.compile(r"\\(.)|\$([0-9]+)", re.DOTALL)


class NoMatchingRuleError(Exception):
    """No rule applies to a name."""


@dataclass(frozen=True, slots=True)
class MappingRule:
    """One rule: `pattern` None for DEFAULT, which leaves the name as it is."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The principal's name; None if the rule does not match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self.pattern.sub(self._replace, name)
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found

    def _replace(self, match: re.Match[str]) -> str:
        """The replacement as in Java: `$1` a group, a backslash for what follows it as it is."""
        return _REFERENCE.sub(lambda reference: _resolve(reference, match), self.replacement)

    def __str__(self) -> str:
        if self.pattern is None:
            return "DEFAULT"
        case = f"/{self.case}" if self.case else ""
        return f"RULE:{self.pattern.pattern}/{self.replacement}{case}"


def parse_mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """The rules in their order; empty ones are ignored. Raises `ExplainedValueError`."""
    return tuple(rule for part in _split(text.strip()) if (rule := _parse(part)) is not None)


def mapping_rules() -> Kind[tuple[MappingRule, ...]]:
    """Rules, of which there must be one at least: without any, no client with a certificate has a name."""

    def parse(text: str) -> tuple[MappingRule, ...]:
        rules = parse_mapping_rules(text)
        if not rules:
            raise ValueError
        return rules

    return Kind("DEFAULT or RULE:pattern/replacement/[LU], several with commas between", parse)


def map_name(rules: Sequence[MappingRule], name: str) -> str:
    """The principal's name by the first rule that matches. Raises `NoMatchingRuleError`."""
    for rule in rules:
        found = rule.apply(name)
        if found is not None:
            return found
    raise NoMatchingRuleError(f"no rule applies to {name[:200]!r}")


def _split(text: str) -> list[str]:
    return [match[1] for match in _SPLITTER.finditer(text)]


def _parse(text: str) -> MappingRule | None:
    match = _PARSER.match(text)
    if match is None or match.end() != len(text):
        raise ExplainedValueError(f"{text[:200]!r} is neither DEFAULT nor RULE:pattern/replacement/[LU]")
    if match[1] is not None:
        return MappingRule()
    if match[2] is None:
        return None
    try:
        pattern = re.compile(match[2], re.ASCII)
    except re.error as problem:
        raise ExplainedValueError(f"the pattern {match[2][:200]!r} is not legal: {problem}") from None
    return MappingRule(pattern, match[4], match[6])


def _resolve(reference: re.Match[str], match: re.Match[str]) -> str:
    """A group's text. Digits that name no group stand for themselves, from the last on; as in Kafka."""
    if reference[1] is not None:
        return reference[1]
    digits, groups = reference[2], match.re.groups
    for end in range(len(digits), 0, -1):
        if int(digits[:end]) <= groups:
            return (match[int(digits[:end])] or "") + digits[end:]
    return reference[0]

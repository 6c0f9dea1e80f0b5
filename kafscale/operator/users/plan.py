"""Plans the changes of the metadata store that make a user match its resource. Pure.

A part that the resource names (credentials, access rules, quotas) is exactly as declared: what others added to this
principal is removed. A part that it named once and names no more is removed. Every other part of the user, and every
other principal, is left alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafscale.formats.acl_record import acl_key
from kafscale.formats.user_record import ScramMechanism
from kafscale.operator.users.spec import UserSpec

CREDENTIALS: Final = "credentials"
RULES: Final = "authorization"
QUOTAS: Final = "quotas"
PARTS: Final = (CREDENTIALS, RULES, QUOTAS)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFound:
    """A user as the metadata store has it. `rules`: the keys of its principal's rules.

    `has_password`: its credential is that of the wanted password.
    """

    mechanisms: frozenset[ScramMechanism] = frozenset()
    has_password: bool = False
    rules: frozenset[str] = frozenset()
    quotas: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPlan:
    """The differences. `mechanism`: the one that gets the wanted password, as the user's only credential.

    `quotas` None: they stay; otherwise they become these, empty: none.
    """

    mechanism: ScramMechanism | None = None
    delete_credentials: bool = False
    put_rules: frozenset[str] = frozenset()
    delete_rules: frozenset[str] = frozenset()
    quotas: Mapping[str, float] | None = None

    @property
    def is_empty(self) -> bool:
        """True if the user matches."""
        return not (self.mechanism or self.delete_credentials or self.put_rules or self.delete_rules) and (
            self.quotas is None
        )

    def changes(self) -> list[str]:
        """The changes for people; without secrets."""
        done = []
        if self.quotas is not None:
            done.append(f"quotas set: {', '.join(sorted(self.quotas))}" if self.quotas else "quotas removed")
        if self.put_rules:
            done.append(f"{len(self.put_rules)} access rules added")
        if self.delete_rules:
            done.append(f"{len(self.delete_rules)} access rules removed")
        if self.mechanism is not None:
            done.append("password set")
        if self.delete_credentials:
            done.append("password removed")
        return done


def named_parts(wanted: UserSpec) -> frozenset[str]:
    """The parts that the resource names."""
    named = {
        CREDENTIALS: wanted.mechanism is not None,
        RULES: wanted.rules is not None,
        QUOTAS: wanted.quotas is not None,
    }
    return frozenset(part for part, is_named in named.items() if is_named)


def plan_user(wanted: UserSpec, applied: Iterable[str], found: UserFound) -> UserPlan:
    """`applied`: parts that the resource had named when it was last carried out."""
    before = frozenset(applied)
    is_so = found.has_password and found.mechanisms == {wanted.mechanism}
    return UserPlan(
        mechanism=None if is_so else wanted.mechanism,
        delete_credentials=wanted.mechanism is None and CREDENTIALS in before and bool(found.mechanisms),
        put_rules=_keys(wanted) - found.rules,
        delete_rules=found.rules - _keys(wanted)
        if wanted.rules is not None or RULES in before
        else frozenset(),
        quotas=_quotas(wanted, QUOTAS in before, found),
    )


def plan_removal(applied: Iterable[str], found: UserFound) -> UserPlan:
    """Removes the parts that the resource had named."""
    before = frozenset(applied)
    return UserPlan(
        delete_credentials=CREDENTIALS in before and bool(found.mechanisms),
        delete_rules=found.rules if RULES in before else frozenset(),
        quotas={} if QUOTAS in before and found.quotas else None,
    )


def _keys(wanted: UserSpec) -> frozenset[str]:
    return frozenset(map(acl_key, wanted.rules or ()))


def _quotas(wanted: UserSpec, was_applied: bool, found: UserFound) -> Mapping[str, float] | None:
    if wanted.quotas is None:
        return {} if was_applied and found.quotas else None
    return None if dict(found.quotas) == dict(wanted.quotas) else wanted.quotas

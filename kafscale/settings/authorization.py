"""The settings of who may do what."""

from dataclasses import dataclass
from enum import StrEnum

from kafscale.settings.kinds import Kind, boolean, choice
from kafscale.settings.rows import setting


class AuthorizerKind(StrEnum):
    """The way in which a broker decides what a client may do."""

    NONE = "none"
    ACL = "acl"


def _principals(text: str) -> frozenset[str]:
    principals = frozenset(part.strip() for part in text.split(";") if part.strip())
    for principal in principals:
        kind, colon, name = principal.partition(":")
        if not (kind and colon and name):
            raise ValueError
    return principals


PRINCIPALS = Kind("principals with semicolons between, as in User:admin;User:ops", _principals)


@dataclass(frozen=True, kw_only=True)
class AuthorizationSettings:
    """Access rules and who stands above them; a part of `Settings`."""

    authorizer: AuthorizerKind = setting(
        "KAFSCALE_AUTHORIZER",
        choice(AuthorizerKind),
        "none",
        "`acl`: a client may do what access rules allow (kafka-acls.sh), and nothing else. `none`: every client may "
        "do everything.",
    )
    super_users: frozenset[str] = setting(
        "KAFSCALE_SUPER_USERS",
        PRINCIPALS,
        "",
        "Principals that may do everything, whatever the rules say, with semicolons between: `User:admin;User:ops`. "
        "One of them creates the first rules.",
    )
    allow_everyone_if_no_acl_found: bool = setting(
        "KAFSCALE_ALLOW_EVERYONE_IF_NO_ACL_FOUND",
        boolean(),
        "false",
        "With a resource that no access rule is about, every client may do everything.",
    )

"""Notes for people: declarations of a user's resource that its cluster does not use. Pure."""

from kafscale.operator.users.spec import UserSpec
from kafscale.protocol.listeners import SecurityProtocol
from kafscale.settings.broker import AuthorizerKind, Settings
from kafscale.settings.listener_kinds import ClientAuth
from kafscale.settings.listener_list import listener_specs


def notes(wanted: UserSpec, settings: Settings) -> list[str]:
    """`settings`: the brokers'."""
    found = []
    problem = _login_problem(wanted, settings)
    if problem is not None:
        found.append(problem)
    if wanted.rules and settings.authorizer is AuthorizerKind.NONE:
        found.append("the brokers have no authorizer, so access rules have no effect")
    return found


def _login_problem(wanted: UserSpec, settings: Settings) -> str | None:
    protocols = {spec.protocol for spec in listener_specs(settings)}
    if wanted.authentication is None:
        return None
    if wanted.mechanism is None:
        takes_certificates = (
            SecurityProtocol.SSL in protocols and settings.ssl_client_auth is not ClientAuth.NONE
        )
        return None if takes_certificates else "no listener takes client certificates"
    name = wanted.mechanism.sasl_name
    if not any(protocol.is_sasl for protocol in protocols):
        return "no listener asks for a password"
    return None if name in settings.sasl_enabled_mechanisms else f"{name} is not an enabled mechanism"

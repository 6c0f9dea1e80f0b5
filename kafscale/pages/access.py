"""Who may see the page: where clients must say who they are, so must those who look."""

import ipaddress
import re
import socket
from enum import Enum, auto
from typing import Final

from kafscale.ops.admin_requests import AdminRequest
from kafscale.ops.metrics_token import MetricsToken
from kafscale.protocol.listeners import SecurityProtocol
from kafscale.settings.broker import AuthorizerKind, Settings
from kafscale.settings.listener_kinds import ClientAuth
from kafscale.settings.listener_list import listener_specs

NEEDS_TOKEN: Final = (
    "the page shows names of topics, groups and clients, and this broker does not let everyone read these: set "
    "KAFSCALE_METRICS_TOKEN_FILE, or KAFSCALE_ADMIN_PAGE=false"
)
NO_SUCH_HOST: Final = (
    "this page answers to addresses and names of this machine alone, because a web site could reach it by a name of "
    "its own: use the broker's address, or set KAFSCALE_METRICS_TOKEN_FILE"
)

_HOST: Final = re.compile(r"(?:\[(?P<inside>[0-9a-f:.]+)\]|(?P<name>[^:\[\]]+))(?::[0-9]*)?")


class Verdict(Enum):
    """The outcome for a request."""

    ADMITTED = auto()
    NEEDS_LOGIN = auto()
    FORBIDDEN = auto()
    OTHER_HOST = auto()


class PageAccess:
    """By the settings, once. `token`: that of the metrics, None if they need none."""

    def __init__(self, settings: Settings, token: MetricsToken | None) -> None:
        self._token = token
        self._is_closed = token is None and protects_names(settings)
        self._hosts = {settings.metrics_addr.host.lower(), socket.gethostname().lower()}

    def verdict(self, request: AdminRequest) -> Verdict:
        """The verdict on a request. With a token the host does not matter: no browser sends it unasked."""
        if self._is_closed:
            return Verdict.FORBIDDEN
        if self._token is not None:
            admitted = self._token.admits_browser(request.authorization)
            return Verdict.ADMITTED if admitted else Verdict.NEEDS_LOGIN
        return Verdict.ADMITTED if self._is_own(request.host) else Verdict.OTHER_HOST

    def _is_own(self, host: str | None) -> bool:
        """True for what a web site elsewhere cannot make its own name: addresses, and names without a domain."""
        if host is None:
            return True  # HTTP/1.0, which no browser speaks.
        found = _HOST.fullmatch(host.lower())
        if found is None:
            return False
        name = (found["inside"] or found["name"]).rstrip(".")
        return name in self._hosts or "." not in name or name.endswith(".localhost") or _is_address(name)


def protects_names(settings: Settings) -> bool:
    """True if not everyone who reaches the broker may list topics and groups."""
    return settings.authorizer is not AuthorizerKind.NONE or any(
        spec.protocol in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
        or (spec.protocol is SecurityProtocol.SSL and settings.ssl_client_auth is ClientAuth.REQUIRED)
        for spec in listener_specs(settings)
    )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

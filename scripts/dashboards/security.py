"""The row of the cluster's dashboard about who logs in, and what is refused."""

from typing import Final

from scripts.dashboards.model import Row, Unit
from scripts.dashboards.parts import cluster_gauge, gauge, lines, total

_BY: Final = "listener, mechanism"
_OF: Final = "{{listener}} {{mechanism}}"

SECURITY: Final = Row(
    title="Security",
    panels=[
        lines(
            "Logins",
            Unit.PER_SECOND,
            (total("kafscale_successful_authentications_total", _BY), _OF),
            (total("kafscale_successful_reauthentications_total", _BY), f"{_OF} again"),
        ),
        lines(
            "Failed logins",
            Unit.PER_SECOND,
            (total("kafscale_failed_authentications_total", _BY), _OF),
            (total("kafscale_failed_reauthentications_total", _BY), f"{_OF} again"),
        ),
        lines(
            "Refused by access rules",
            Unit.PER_SECOND,
            (
                total("kafscale_authorization_refusals_total", "resource_type, operation"),
                "{{resource_type}} {{operation}}",
            ),
        ),
        lines(
            "Connections closed",
            Unit.PER_SECOND,
            (total("kafscale_expired_connections_killed_total", "pod"), "{{pod}} session expired"),
            (total("kafscale_connections_rejected_per_ip_total", "pod"), "{{pod}} too many of an address"),
        ),
        lines(
            "Throttled by quotas",
            Unit.PER_SECOND,
            (total("kafscale_throttle_seconds_count", "quota"), "{{quota}}"),
        ),
        lines("Muted connections", Unit.COUNT, (gauge("kafscale_connections_muted", "pod"), "{{pod}}")),
        lines("Logins that wait", Unit.COUNT, (gauge("kafscale_logins_waiting", "pod"), "{{pod}}")),
        lines(
            "Users and access rules",
            Unit.COUNT,
            (cluster_gauge("kafscale_users"), "users"),
            (cluster_gauge("kafscale_access_rules"), "access rules"),
        ),
    ],
)

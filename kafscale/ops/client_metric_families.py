"""The metrics of clients: their connections, who they are, what they may do, and how much (see `metric_families`)."""

from kafscale.ops.metric_family import Family, FamilyTable

_rows = FamilyTable()
_counter, _gauge, _histogram = _rows.counter, _rows.gauge, _rows.histogram

CONNECTIONS = _gauge("kafscale_connections", "Kafka clients connected now.")
CONNECTIONS_ACCEPTED = _counter(
    "kafscale_connections_accepted_total", "Connections of Kafka clients accepted."
)
CONNECTIONS_REJECTED = _counter(
    "kafscale_connections_rejected_total", "Connections closed at once because there were too many."
)
CONNECTIONS_MUTED = _gauge(
    "kafscale_connections_muted", "Connections from which nothing is read now, because of a client quota."
)
THROTTLE_TIME = _histogram(
    "kafscale_throttle_seconds",
    "Throttle times that clients were given, by the quota that they exceeded; the count is the number of requests, "
    "and for `connection_creation_rate` that of connections, which are closed after this time.",
    "quota",
)
FRAMES_REFUSED = _counter(
    "kafscale_frames_refused_total",
    "Requests that ended their connection, by what was wrong with them.",
    "reason",
)
AUTHENTICATIONS_SUCCESSFUL = _counter(
    "kafscale_successful_authentications_total",
    "Connections whose client has authenticated itself by SASL.",
    "listener",
    "mechanism",
)
AUTHENTICATIONS_FAILED = _counter(
    "kafscale_failed_authentications_total",
    "Attempts to authenticate by SASL that failed, and connections that sent something else meanwhile.",
    "listener",
    "mechanism",
)
REAUTHENTICATIONS_SUCCESSFUL = _counter(
    "kafscale_successful_reauthentications_total",
    "Clients that have authenticated themselves again on the same connection (KIP-368).",
    "listener",
    "mechanism",
)
REAUTHENTICATIONS_FAILED = _counter(
    "kafscale_failed_reauthentications_total",
    "Clients that failed to do so; their connection is closed.",
    "listener",
    "mechanism",
)
EXPIRED_CONNECTIONS_KILLED = _counter(
    "kafscale_expired_connections_killed_total",
    "Connections that were closed because their session had expired.",
    "listener",
)
LOGINS_WAITING = _gauge(
    "kafscale_logins_waiting", "Logins that wait for a thread that checks their password (PLAIN)."
)
USERS = _gauge("kafscale_users", "Users with SCRAM credentials.")

TLS_CERTIFICATE_EXPIRY = _gauge(
    "kafscale_tls_certificate_expiry_timestamp_seconds",
    "When the certificate that listeners with SSL or SASL_SSL show expires, in seconds since 1970.",
)
TLS_FILES_FAILED = _counter(
    "kafscale_tls_files_failed_total",
    "Changes of the TLS files that were of no use; the certificate before stays in use.",
)
CONNECTIONS_REJECTED_PER_IP = _counter(
    "kafscale_connections_rejected_per_ip_total",
    "Connections closed at once because their address had too many.",
)

AUTHORIZATION_REFUSALS = _counter(
    "kafscale_authorization_refusals_total",
    "Requests for a resource that access rules refused, by resource type and operation.",
    "resource_type",
    "operation",
)
ACCESS_RULES = _gauge("kafscale_access_rules", "Access rules by which this broker decides.")

FAMILIES: tuple[Family, ...] = tuple(_rows)
"""All rows, in the order of their declaration."""

"""New connections of an address that opens too many (KIP-612)."""

import asyncio

from kafscale.ops.metrics import Metrics
from kafscale.protocol.quota_kinds import QuotaKind
from kafscale.security.client_quotas import ConnectionQuota
from kafscale.server.connection_host import HostedConnection
from kafscale.server.frame_lanes import share_key


def apply_connection_quota(quota: ConnectionQuota, connection: HostedConnection, metrics: Metrics) -> None:
    """Count a new connection; one too many is not read from, and closed after the throttle time, as in Kafka."""
    loop, host = asyncio.get_running_loop(), connection.peer_host
    delay_ms = quota.record(host, share_key(host), loop.time() * 1000)
    if delay_ms:
        metrics.throttle(QuotaKind.CONNECTION).observe(delay_ms / 1000)
        connection.mute.extend(delay_ms)
        # Not now: the loop begins to read after this, whatever was paused before.
        loop.call_soon(connection.stop_reading)
        loop.call_later(delay_ms / 1000, connection.abort)

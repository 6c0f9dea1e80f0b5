"""The settings of what requests and connections may take."""

from dataclasses import dataclass

from kafscale.settings.kinds import integer, size
from kafscale.settings.listener_kinds import AddressLimits, address_limits
from kafscale.settings.rows import INT32_MAX, INT64_MAX, KIB, MIB, setting


@dataclass(frozen=True, kw_only=True)
class RequestSettings:
    """Limits of requests, of the memory that they take, and of connections; a part of `Settings`."""

    frame_max_bytes: int = setting(
        "KAFSCALE_FRAME_MAX_BYTES",
        size(KIB, INT32_MAX),
        "100MiB",
        "The largest request that is accepted; the connection that sends a larger one is closed.",
    )
    fetch_max_bytes: int = setting(
        "KAFSCALE_FETCH_MAX_BYTES",
        size(KIB, INT32_MAX),
        "55MiB",
        "The most that one fetch returns, whatever the client asks for; the first batch is returned whole.",
    )
    buffer_bytes: int = setting(
        "KAFSCALE_BUFFER_BYTES",
        size(MIB, INT64_MAX),
        "256MiB",
        "The memory for records that wait to be flushed; while it is full, producers are not read from.",
    )
    max_connections: int = setting(
        "KAFSCALE_MAX_CONNECTIONS",
        integer(1, 1_000_000),
        "10000",
        "How many Kafka clients may be connected; further connections are closed at once.",
    )
    max_connections_per_ip: int = setting(
        "KAFSCALE_MAX_CONNECTIONS_PER_IP",
        integer(1, INT32_MAX),
        "2147483647",
        "How many of them may be of one address; further connections are closed at once.",
    )
    max_connections_per_ip_overrides: AddressLimits = setting(
        "KAFSCALE_MAX_CONNECTIONS_PER_IP_OVERRIDES",
        address_limits(INT32_MAX),
        "",
        "Other limits than KAFSCALE_MAX_CONNECTIONS_PER_IP for some addresses, with commas between: "
        "`10.0.0.7:500,2001:db8::1:20`. 0 lets an address in never.",
    )
    connections_max_idle_ms: int = setting(
        "KAFSCALE_CONNECTIONS_MAX_IDLE_MS",
        integer(1_000, INT64_MAX),
        "600000",
        "A connection is closed after this long without a request.",
    )
    quota_window_num: int = setting(
        "KAFSCALE_QUOTA_WINDOW_NUM",
        integer(1, 1_000),
        "11",
        "Over how many windows the rates of client quotas are measured.",
    )
    quota_window_size_seconds: int = setting(
        "KAFSCALE_QUOTA_WINDOW_SIZE_SECONDS",
        integer(1, 3_600),
        "1",
        "The time of each window of client quotas.",
    )
    slow_request_ms: int = setting(
        "KAFSCALE_SLOW_REQUEST_MS",
        integer(0, INT32_MAX),
        "5000",
        "A Fetch or Produce that takes longer is logged with its stages; the wait for fetch.min.bytes, and for the "
        "client to take the reply, do not count. 0 for none.",
    )

"""One connection to one etcd member: its channel, the token it was given, and whether it is still to be used."""

import asyncio
import ssl
from collections.abc import Callable

import grpc
from aetcd import rpc

from kafscale.errors import StoreUnavailableError
from kafscale.metadata.etcd.cancellation import CallCancelledError, cancellation_kept
from kafscale.metadata.etcd.config import EtcdConfig
from kafscale.metadata.etcd.verdict import AUTH_NOT_ENABLED, LOGIN_FAILED

# On a member that knows of no leader a call, or a watch, fails at once instead of waiting for one.
_REQUIRE_LEADER = ("hasleader", "true")

_OPTIONS = (
    # Every connection is a connection of its own: without this a new one would share a dead one's socket.
    ("grpc.use_local_subchannel_pool", 1),
    # Answers are bounded by what is asked for: pages of a range, revisions in a watch's batch.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # etcd takes no more than one ping in 5 s for well behaved. Only a silent watch depends on them.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A proxy that the environment names is for the way out, not for the way to etcd; etcd's own client agrees.
    ("grpc.enable_http_proxy", 0),
    # What one call may do again is decided in calls.py.
    ("grpc.enable_retries", 0),
)


CALL_ERRORS = (grpc.aio.AioRpcError, grpc.aio.BaseError, CallCancelledError)
"""The errors of a call: etcd's or the network's, a connection closed under it, and rarely gRPC's own workings."""


def code_and_details(error: BaseException) -> tuple[grpc.StatusCode, str]:
    """The text of one of `CALL_ERRORS`."""
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code(), error.details() or ""
    if isinstance(error, CallCancelledError):
        return grpc.StatusCode.CANCELLED, str(error)
    return grpc.StatusCode.UNKNOWN, repr(error)


class EtcdRefusedError(StoreUnavailableError):
    """etcd answered that it will not do this; `details` is its reason."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class EtcdConnection:
    """A channel to one endpoint. Once retired it takes no new calls, and what follows it moves elsewhere."""

    def __init__(self, endpoint: str, config: EtcdConfig) -> None:
        self.endpoint = endpoint
        self.retired = False
        self.token: str | None = None
        self._config = config
        self._channel = _open_channel(endpoint, config)
        self._login_lock = asyncio.Lock()
        self._on_retired: list[Callable[[], None]] = []
        self.kv = rpc.KVStub(self._channel)
        self.leases = rpc.LeaseStub(self._channel)
        self.watches = rpc.WatchStub(self._channel)
        self.maintenance = rpc.MaintenanceStub(self._channel)
        self.members = rpc.ClusterStub(self._channel)
        self._auth = rpc.AuthStub(self._channel)

    def is_usable(self) -> bool:
        """True if a call begun now is sent to the member, rather than waiting for a connection to it."""
        return not self.retired and self._channel.get_state() is grpc.ChannelConnectivity.READY

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of every call."""
        return (_REQUIRE_LEADER,) if self.token is None else (_REQUIRE_LEADER, ("token", self.token))

    async def login(self, stale: str | None, timeout_sec: float) -> None:
        """Get a token, unless the one in use is another than `stale` already; nothing to do without a user.

        Raises `EtcdRefusedError` for a wrong user or password, and as gRPC does when etcd does not answer.
        """
        async with self._login_lock:
            if self.retired or self.token != stale or self._config.username is None:
                return
            request = rpc.AuthenticateRequest(name=self._config.username, password=self._config.password)
            try:
                with cancellation_kept(self.endpoint):
                    answer = await self._auth.Authenticate(request, timeout=timeout_sec)
            except grpc.aio.AioRpcError as error:
                if error.details() == AUTH_NOT_ENABLED:
                    return
                if error.details() == LOGIN_FAILED:
                    raise EtcdRefusedError(
                        f"etcd at {self.endpoint} refuses the user {self._config.username!r} or its password: "
                        "correct KAFSCALE_ETCD_USERNAME and KAFSCALE_ETCD_PASSWORD",
                        LOGIN_FAILED,
                    ) from error
                raise
            self.token = answer.token

    def call_when_retired(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have `callback` called when the connection is retired; the returned function takes that back."""
        self._on_retired.append(callback)
        return lambda: self._on_retired.remove(callback)

    def retire(self) -> None:
        """Use it for nothing new; calls in flight go on."""
        if not self.retired:
            self.retired = True
            for callback in tuple(self._on_retired):
                callback()

    async def close(self, grace_sec: float | None) -> None:
        """Give the channel back; calls in flight have so long to end by themselves."""
        self.retire()
        await self._channel.close(grace_sec)


def _open_channel(endpoint: str, config: EtcdConfig) -> grpc.aio.Channel:
    scheme, _, target = endpoint.partition("://")
    if scheme == "https":
        # Read for every connection, so that certificates that were renewed are taken up.
        credentials = grpc.ssl_channel_credentials(
            root_certificates=config.ca.read_bytes() if config.ca else system_authorities(),
            private_key=config.key.read_bytes() if config.key else None,
            certificate_chain=config.cert.read_bytes() if config.cert else None,
        )
        return grpc.aio.secure_channel(target, credentials, options=_OPTIONS)
    return grpc.aio.insecure_channel(target, options=_OPTIONS)


def system_authorities() -> bytes | None:
    """The machine's certificate authorities (PEM); gRPC would take a list of its own."""
    found = ssl.create_default_context().get_ca_certs(binary_form=True)
    return "".join(ssl.DER_cert_to_PEM_cert(der) for der in found).encode() or None

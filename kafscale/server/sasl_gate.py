"""The gate of a connection of a SASL listener: nothing behind it is reached before the client is known.

`SaslSession` decides; this is its driver. It stands in front of the dispatcher, with frames of its own size, and is
gone through with one comparison once the client is authenticated.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Final

from kafscale.handlers import sasl_authenticate, sasl_handshake
from kafscale.handlers.routes import ROUTES_BY_KEY
from kafscale.ops.metrics import FrameRefusal
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.api_messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.header import RequestHeader, parse_request_header
from kafscale.protocol.messages import decode_request, encode_response
from kafscale.security.sasl import (
    Authenticated,
    AuthenticationError,
    BusyError,
    Challenge,
    Exchange,
)
from kafscale.security.sasl_service import SaslClient, SaslService, failure_text
from kafscale.security.sasl_session import (
    IllegalStateError,
    SaslSession,
    SaslState,
    SessionExpiredError,
    SessionStart,
)
from kafscale.server.connection_host import GatedConnection, RequestDispatcher, Requester
from kafscale.server.frames import FrameLimits
from kafscale.server.illegal_state import illegal_state_answer

_LENGTH: Final = struct.Struct(">i")
_API_KEY: Final = struct.Struct(">h")
MIN_RAW_TOKEN_BYTES: Final = 2
_LIMITED_BY: Final = "KAFSCALE_SASL_SERVER_MAX_RECEIVE_SIZE"

Clock = Callable[[], int]

_Outcome = Challenge | tuple[Authenticated, SessionStart] | AuthenticationError | None


class SaslGate:
    """Of one connection: a `RequestDispatcher` in front of the broker's."""

    def __init__(
        self,
        connection: GatedConnection,
        service: SaslService,
        behind: RequestDispatcher,
        *,
        now_ms: Clock,
        steady_ms: Clock,
    ) -> None:
        """`now_ms`: Unix milliseconds. `steady_ms`: a monotonic clock's."""
        self._connection = connection
        self._service = service
        self._behind = behind
        self._now_ms = now_ms
        self._steady_ms = steady_ms
        self._client = SaslClient(connection.listener, connection.protocol, connection.peer_host)
        self._session = SaslSession(service.limits.max_reauth_ms)
        self._exchange: Exchange | None = None
        self._frame_limits = connection.frame_limits
        self._timer: asyncio.TimerHandle | None = None
        self._asked_ms = 0
        self._narrow()

    # --- what the connection calls

    def dispatch(self, requester: Requester, frame: memoryview) -> Awaitable[None] | None:
        """See `RequestDispatcher`."""
        session = self._session
        if session.state is SaslState.AUTHENTICATED:
            if session.expires_ms is None:
                return self._behind.dispatch(requester, frame)
            return self._dispatch_in_session(requester, frame)
        return self._dispatch_before(requester, frame)

    def close(self) -> None:
        """The connection is gone."""
        self._stop_timer()
        if self._session.state is not SaslState.AUTHENTICATED:
            self._session.end()

    # --- limits of untrusted clients

    def _narrow(self) -> None:
        limits = self._service.limits
        least, most, _ = self._frame_limits
        if most > limits.max_receive_bytes:
            self._connection.frame_limits = FrameLimits(least, limits.max_receive_bytes, _LIMITED_BY)
        self._timer = asyncio.get_running_loop().call_later(limits.timeout_ms / 1000, self._overdue)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _overdue(self) -> None:
        self._refuse(FrameRefusal.TOO_SLOW, "the client did not authenticate itself in time")

    def _refuse(self, kind: FrameRefusal, reason: str) -> None:
        self._session.end()
        self._service.failed(self._client, self._session.mechanism, reason, is_again=self._session.is_again)
        self._connection.refuse(kind, reason)

    # --- requests

    def _dispatch_in_session(self, requester: Requester, frame: memoryview) -> Awaitable[None] | None:
        (api_key,) = _API_KEY.unpack_from(frame)
        if api_key == ApiKey.SASL_HANDSHAKE and self._session.begin_again(self._steady_ms()):
            self._narrow()
            return self._dispatch_before(requester, frame)
        try:
            self._session.check_expiry(self._steady_ms())
        except SessionExpiredError as problem:
            self._service.expired(self._client)
            requester.refuse(FrameRefusal.SESSION_EXPIRED, str(problem))
            return None
        return self._behind.dispatch(requester, frame)

    def _dispatch_before(self, requester: Requester, frame: memoryview) -> Awaitable[None] | None:
        session = self._session
        if session.state is SaslState.ENDED:
            return None
        if session.awaits_raw_token:
            return self._raw_token(requester, bytes(frame))
        header = parse_request_header(frame)
        route = ROUTES_BY_KEY.get(header.api_key)
        try:
            session.request(header.api_key)
        except IllegalStateError as problem:
            return self._illegal(requester, header, frame[header.body_offset :], problem)
        is_served = route is not None and route.min_version <= header.api_version <= route.max_version
        if header.api_key == ApiKey.API_VERSIONS or not is_served:
            return self._behind.dispatch(requester, frame)
        body = frame[header.body_offset :]
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(
                requester, header, decode_request(header.api_key, header.api_version, body)
            )
        return self._wrapped_token(
            requester, header, decode_request(header.api_key, header.api_version, body)
        )

    def _illegal(
        self, requester: Requester, header: RequestHeader, body: memoryview, problem: IllegalStateError
    ) -> Awaitable[None] | None:
        self._asked_ms = self._steady_ms()
        frame = illegal_state_answer(header, body) if problem.wants_answer else None
        if frame is None:
            self._refuse(FrameRefusal.UNAUTHENTICATED, str(problem))
            return None
        slot = requester.open_slot(ApiKey(header.api_key))
        return self._fail(str(problem), lambda: slot.send((frame,), error_code=ErrorCode.ILLEGAL_SASL_STATE))

    def _handshake(
        self, requester: Requester, header: RequestHeader, message: SaslHandshakeRequest
    ) -> Awaitable[None] | None:
        self._asked_ms = self._steady_ms()
        mechanisms = self._service.mechanisms(self._connection.protocol)
        answer = sasl_handshake.response(mechanisms, message.mechanism)
        frame = encode_response(answer, header.api_version, header.correlation_id)
        slot = requester.open_slot(ApiKey.SASL_HANDSHAKE)
        if message.mechanism not in mechanisms:
            reason = "the client's mechanism is not enabled"
            return self._fail(reason, lambda: slot.send((frame,), error_code=answer.error_code))
        self._session.handshake(message.mechanism, wraps_tokens=header.api_version >= 1)
        if self._session.awaits_raw_token:
            limits = self._connection.frame_limits
            self._connection.frame_limits = limits._replace(least_bytes=MIN_RAW_TOKEN_BYTES)
        self._exchange = self._service.exchange(self._session.mechanism, self._client)
        slot.send((frame,))
        return None

    async def _wrapped_token(
        self, requester: Requester, header: RequestHeader, message: SaslAuthenticateRequest
    ) -> None:
        slot = requester.open_slot(ApiKey.SASL_AUTHENTICATE)

        def send(answer: SaslAuthenticateResponse) -> None:
            frame = encode_response(answer, header.api_version, header.correlation_id)
            slot.send((frame,), error_code=answer.error_code)

        is_again = self._session.is_again
        outcome = await self._evaluate(message.auth_bytes)
        match outcome:
            case Challenge(token):
                send(sasl_authenticate.response(token, 0))
            case (Authenticated(token), SessionStart() as start):
                send(sasl_authenticate.response(token, start.lifetime_ms))
            case AuthenticationError() as problem:
                text = failure_text(problem, self._session.mechanism, is_again=is_again)
                failed = sasl_authenticate.failure(ErrorCode.SASL_AUTHENTICATION_FAILED, text)
                await self._fail(problem.reason, lambda: send(failed))

    async def _raw_token(self, requester: Requester, token: bytes) -> None:
        """A token without a request around it; so is the answer. A failure ends the connection without one."""
        slot = requester.open_slot(ApiKey.SASL_AUTHENTICATE)
        outcome = await self._evaluate(token)
        match outcome:
            case Challenge(answer) | (Authenticated(answer), SessionStart()):
                slot.send((_LENGTH.pack(len(answer)) + answer,))
            case AuthenticationError() as problem:
                await self._fail(problem.reason, slot.drop)

    async def _evaluate(self, token: bytes | None) -> _Outcome:
        """The mechanism's answer; None where the connection has been closed, or is gone."""
        session, exchange = self._session, self._exchange
        assert exchange is not None
        self._asked_ms = self._steady_ms()
        try:
            session.token()
            step = exchange.respond(token or b"")
            step = await step if isinstance(step, Awaitable) else step
            if session.state is SaslState.ENDED:
                return None
            if isinstance(step, Challenge):
                return step
            start = session.authenticated(step, now_ms=self._now_ms(), steady_ms=self._steady_ms())
        except AuthenticationError as problem:
            return problem
        except BusyError as problem:
            self._refuse(FrameRefusal.TOO_SLOW, str(problem))
            return None
        self._let_in(start)
        return step, start

    def _let_in(self, start: SessionStart) -> None:
        self._exchange = None
        self._stop_timer()
        self._connection.frame_limits = self._frame_limits
        if not start.is_again:
            self._connection.authenticated(start.principal)
        self._service.succeeded(
            self._client, self._session.mechanism, start.principal, is_again=start.is_again
        )

    # --- failures

    async def _fail(self, reason: str, answer: Callable[[], None]) -> None:
        """Answer after the delay, measured from the request on, and close.

        So the time of the answer tells no unknown user from a wrong password.
        """
        session = self._session
        self._service.failed(self._client, session.mechanism, reason, is_again=session.is_again)
        session.end()
        delay_ms = self._service.limits.failure_delay_ms - (self._steady_ms() - self._asked_ms)
        await asyncio.sleep(max(0, delay_ms) / 1000)
        answer()
        self._connection.close()

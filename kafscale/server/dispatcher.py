"""From a frame to its handler, and from the handler's answer to the reply."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable

from kafscale.handlers.api_versions import unsupported_version_response
from kafscale.handlers.route import Answer, Route
from kafscale.handlers.routes import ROUTES_BY_KEY, version_range
from kafscale.ops.metrics import FrameRefusal
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.api_messages import Request, Response
from kafscale.protocol.header import RequestHeader, parse_request_header
from kafscale.protocol.messages import decode_request, encode_response
from kafscale.protocol.response_pieces import encode_pieces, frame_start, is_large
from kafscale.protocol.types import Buffer
from kafscale.server.connection_host import Requester
from kafscale.server.reply_queue import ReplySlot
from kafscale.serving.context import Broker, RequestContext
from kafscale.serving.lasting_body import lasting
from kafscale.serving.request_throttle import RequestThrottle

logger = logging.getLogger(__name__)

# A message larger than this is decoded in a thread: the loop serves others meanwhile.
LARGE_MESSAGE_BYTES = 128 * 1024

_REPLY_ANYWAY_VERSION = 0


class Dispatcher:
    """Knows the routes; one for the whole broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._quotas = broker.quotas

    def dispatch(self, requester: Requester, frame: memoryview) -> Awaitable[None] | None:
        """Hand the request to its handler.

        `frame` is not used after the return, unless an awaitable is returned: that must be awaited first, and
        before the connection's next request (see `produce.handle`). Raises `MalformedRequestError`.
        """
        header = parse_request_header(frame)
        route = ROUTES_BY_KEY.get(header.api_key)
        if route is None or not route.min_version <= header.api_version <= route.max_version:
            self._unsupported(requester, header)
            return None
        throttle = (
            self._throttle(requester, header, route) if self._quotas.are_any and requester.is_known else None
        )
        body = frame[header.body_offset :]
        access = requester.access
        if access.is_restricted:
            access = access.in_request(route.api)
        request = RequestContext(
            header.api_version,
            header.correlation_id,
            header.client_id,
            requester.peer_host,
            requester.software,
            requester.listener,
            len(body),
            access,
            throttle,
        )
        slot = requester.open_slot(route.api, throttle)
        if throttle is None:
            return self._call(route, requester, request, body, slot)
        if route.api is ApiKey.PRODUCE:
            throttle.produced(len(frame))
        return throttle.run(lambda: self._call(route, requester, request, body, slot))

    def _throttle(self, requester: Requester, header: RequestHeader, route: Route) -> RequestThrottle:
        return RequestThrottle(
            self._quotas,
            self._broker.metrics,
            requester.mute,
            user=requester.access.principal.name,
            client_id=header.client_id,
            api=route.api,
            version=header.api_version,
        )

    def _call(
        self, route: Route, requester: Requester, request: RequestContext, body: memoryview, slot: ReplySlot
    ) -> Awaitable[None] | None:
        if route.body_handler is not None:
            return route.body_handler(self._broker, request, body, slot)
        if len(body) > LARGE_MESSAGE_BYTES:
            return self._decode_in_thread(route, requester, request, lasting(body), slot)
        message = decode_request(route.api, request.api_version, body)
        if route.waits_for_clients:
            requester.body_is_read()
        return self._handle(route, request, message, slot)

    def _unsupported(self, requester: Requester, header: RequestHeader) -> None:
        if header.api_key == ApiKey.API_VERSIONS:
            own_range = version_range(ROUTES_BY_KEY[header.api_key])
            frame = encode_response(
                unsupported_version_response(own_range), _REPLY_ANYWAY_VERSION, header.correlation_id
            )
            requester.open_slot(ApiKey.API_VERSIONS).send((frame,))
            return
        requester.refuse(
            FrameRefusal.UNSUPPORTED_API,
            f"API key {header.api_key} version {header.api_version} is not served (docs/supported-apis.md)",
        )

    async def _decode_in_thread(
        self, route: Route, requester: Requester, request: RequestContext, body: Buffer, slot: ReplySlot
    ) -> None:
        async with self._broker.decoding:
            message = await asyncio.to_thread(
                decode_request, route.api, request.api_version, memoryview(body)
            )
        if route.waits_for_clients:
            del body
            requester.body_is_read()
        answering = self._handle(route, request, message, slot)
        if answering is not None:
            await answering

    def _handle(
        self, route: Route, request: RequestContext, message: Request, slot: ReplySlot
    ) -> Awaitable[None] | None:
        assert route.message_handler is not None
        answer = route.message_handler(self._broker, request, message)
        if inspect.isawaitable(answer):
            return self._answer_later(answer, request, slot)
        return self._answer(answer, request, slot)

    async def _answer_later(
        self, answer: Awaitable[Answer], request: RequestContext, slot: ReplySlot
    ) -> None:
        answering = self._answer(await answer, request, slot)
        if answering is not None:
            await answering

    def _answer(self, answer: Answer, request: RequestContext, slot: ReplySlot) -> Awaitable[None] | None:
        if request.throttle is not None:
            answer = request.throttle.answered(answer)
        if isinstance(answer, bytes):
            slot.send((answer,))
        elif is_large(answer):
            return self._answer_in_turns(answer, request, slot)
        else:
            frame = encode_response(answer, request.api_version, request.correlation_id)
            slot.send((frame,), error_code=_error_code(answer))
        return None

    @staticmethod
    async def _answer_in_turns(answer: Response, request: RequestContext, slot: ReplySlot) -> None:
        """Encode the answer; other tasks run in between."""
        pieces: list[bytes] = []
        for piece in encode_pieces(answer, request.api_version):
            pieces.append(piece)
            await asyncio.sleep(0)
        start = frame_start(answer, request.api_version, request.correlation_id, sum(map(len, pieces)))
        slot.send((start, *pieces), error_code=_error_code(answer))


def _error_code(answer: Response) -> int:
    return getattr(answer, "error_code", 0) or 0

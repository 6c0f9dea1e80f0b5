"""Carries out the faults of requests that a test ordered, in front of a broker's dispatcher."""

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kafscale.cluster.view import ClusterView
from kafscale.handlers.routes import ROUTES_BY_KEY
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.header import RequestHeader, parse_request_header
from kafscale.protocol.message_classes import REQUEST_CLASSES, RESPONSE_CLASSES
from kafscale.protocol.messages import encode_response
from kafscale.protocol.wire import UNDERRUN_ERRORS
from kafscale.server.connection_host import RequestDispatcher, Requester
from kafscale.server.reply_queue import ReplySlot
from kafscale.testing.error_answers import (
    FailedPart,
    add_failed,
    answer_of,
    has_whole_error,
    is_left,
    mark_topics,
    take_failed,
    whole_error,
)
from kafscale.testing.faulty_replies import ChangedSlot, LateSlot, LostSlot, RepliesBehind
from kafscale.testing.request_faults import Delay, Drop, Failure, RequestFaults

_LENGTH_BYTES: Final = 4
_FALLBACK_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request: its header, decoded message, and frame."""

    api: ApiKey
    header: RequestHeader
    message: Any
    frame: memoryview

    @property
    def version(self) -> int:
        return self.header.api_version


class FaultyDispatcher:
    """A `RequestDispatcher`. Without faults in force a request costs one comparison more."""

    def __init__(self, faults: RequestFaults, behind: RequestDispatcher, view: ClusterView) -> None:
        self._faults = faults
        self._behind = behind
        self._view = view

    def dispatch(self, requester: Requester, frame: memoryview) -> Awaitable[None] | None:
        """See `RequestDispatcher`."""
        if not self._faults.rules:
            return self._behind.dispatch(requester, frame)
        header = parse_request_header(frame)
        route = ROUTES_BY_KEY.get(header.api_key)
        if route is None or not route.min_version <= header.api_version <= route.max_version:
            return self._behind.dispatch(requester, frame)
        return self._dispatch(route.api, header, requester, frame)

    def _dispatch(
        self, api: ApiKey, header: RequestHeader, requester: Requester, frame: memoryview
    ) -> Awaitable[None] | None:
        drop = self._taken(Drop, api)
        if drop is not None and not drop.after:
            requester.open_slot(api).end_connection()
            return None
        if drop is not None:
            requester = RepliesBehind(requester, LostSlot)
        delay = self._taken(Delay, api)
        if delay is not None:
            requester = RepliesBehind(requester, partial(LateSlot, delay_sec=delay.seconds))
        failures = [rule for rule in self._faults.rules if isinstance(rule, Failure) and rule.is_for(api)]
        if failures:
            asked = _decoded(api, header, frame)
            for failure in failures if asked is not None else ():
                assert asked is not None
                done = self._fail(failure, asked, requester)
                if done is not None:
                    return done()
        return self._behind.dispatch(requester, frame)

    def _topic_name(self, topic_id: uuid.UUID) -> str | None:
        topic = self._view.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def _taken(self, kind: type[Any], api: ApiKey) -> Any:
        for rule in self._faults.rules:
            if isinstance(rule, kind) and rule.is_for(api) and rule.take():
                return rule
        return None

    def _fail(
        self, failure: Failure, asked: _Asked, requester: Requester
    ) -> Callable[[], Awaitable[None] | None] | None:
        """The call that answers; None if the failure does not concern the request."""
        api, version = asked.api, asked.version
        if has_whole_error(api, version, failure.error):
            if not failure.take():
                return None
            answer = whole_error(api, version, failure.error)
            return partial(_answer, asked, requester, answer, failure.error)
        part = FailedPart(error=failure.error, topic=failure.topic, partition=failure.partition)
        if api is ApiKey.METADATA:
            return self._fail_metadata(failure, part, asked, requester)
        failed = take_failed(api, version, asked.message, part, self._topic_name)
        if failed is None or not failure.take():
            return None
        if not is_left(api, version, asked.message):
            return partial(_answer, asked, requester, answer_of(api, version, failed), failure.error)
        return partial(self._carry_out_rest, asked, requester, failed)

    def _fail_metadata(
        self, failure: Failure, part: FailedPart, asked: _Asked, requester: Requester
    ) -> Callable[[], Awaitable[None] | None] | None:
        names = {one.name or self._topic_name(one.topic_id) for one in asked.message.topics or ()}
        if part.topic is not None and names and part.topic not in names:
            return None
        if not failure.take():
            return None
        asked.message.allow_auto_topic_creation = False

        def mark(answer: Any) -> None:
            mark_topics(answer, part)

        return partial(self._carry_out, asked, requester, mark)

    def _carry_out_rest(
        self, asked: _Asked, requester: Requester, failed: list[Any]
    ) -> Awaitable[None] | None:
        if asked.api is ApiKey.FETCH:
            asked.message.max_wait_ms = 0  # A fetch with an error is answered at once.

        def add(answer: Any) -> None:
            add_failed(asked.api, asked.version, answer, failed)

        return self._carry_out(asked, requester, add)

    def _carry_out(
        self, asked: _Asked, requester: Requester, edit: Callable[[Any], None]
    ) -> Awaitable[None] | None:
        """Let the broker carry out what the message is now, and edit its answer."""

        def change(frame: bytes) -> tuple[bytes, int]:
            answer = _read_answer(asked, frame)
            edit(answer)
            return encode_response(answer, asked.version, asked.header.correlation_id), 0

        request = bytes(asked.message.encode(version=asked.version, header=True))
        return self._behind.dispatch(
            RepliesBehind(requester, partial(ChangedSlot, change=change)), memoryview(request)
        )


def _decoded(api: ApiKey, header: RequestHeader, frame: memoryview) -> _Asked | None:
    """The request; None if it is malformed: the broker refuses it."""
    try:
        message = REQUEST_CLASSES[api].decode(bytes(frame), version=header.api_version, header=True)
    except (ValueError, TypeError, *UNDERRUN_ERRORS):
        return None
    return _Asked(api, header, message, frame)


def _read_answer(asked: _Asked, frame: bytes) -> Any:
    """The broker's answer, as an object that can be changed and encoded again."""
    message = RESPONSE_CLASSES[asked.api]
    read = message.decode(frame[_LENGTH_BYTES:], version=asked.version, header=True)
    return message(**{name: getattr(read, name) for name in message.fields})


def _answer(asked: _Asked, requester: Requester, answer: Any, error: ErrorCode) -> None:
    """Send the answer; as in Kafka, a producer that wants none loses its connection."""
    slot: ReplySlot = requester.open_slot(asked.api)
    if asked.api is ApiKey.PRODUCE and asked.message.acks == 0:
        slot.end_connection()
        return
    # Clients read an ApiVersions answer with an error as one of version 0 (KIP-511).
    version = _FALLBACK_VERSION if asked.api is ApiKey.API_VERSIONS else asked.version
    slot.send((encode_response(answer, version, asked.header.correlation_id),), error_code=int(error))

"""One client's connection: frames in, ordered replies out, and when to stop reading.

Theory of operation. All connections of a broker receive into one shared buffer, whose content is consumed or
copied before the loop does anything else; only a frame that does not fit gets memory of its own
(`FrameInProgress`), which is charged to the budget as its bytes arrive (`frame_lanes` has the rules). A frame is
dispatched as soon as it is whole, unless the connection's gate is closed: then it and the bytes after it are kept,
and nothing more is read until the gate opens. The gate is closed

- while any request but Produce is in flight, and for any request but Produce while Produce is: as in Kafka, which
  handles one request of a connection at a time, except that produce requests run together;
- for Produce while the memory budget is exhausted, until the budget has served earlier requests;
- while the client does not take its replies, or too many bytes wait behind a late reply;
- while the connection is muted, because its client has exceeded a quota (`Mute`);
- after a number of requests in a row, until the loop has served other connections.

A large frame begins only while the gate is open to it. Bytes that are kept count in their address's share.
"""

import asyncio
import time
from collections.abc import Awaitable
from typing import cast

from kafscale.ops.metrics import FrameRefusal
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.listeners import ListenerName, SecurityProtocol
from kafscale.protocol.wire import MalformedRequestError
from kafscale.security.access import UNRESTRICTED, Access
from kafscale.security.principal import ANONYMOUS, Principal
from kafscale.server.activity import Activity
from kafscale.server.connection_host import ConnectionGate, ConnectionHost, RequestDispatcher
from kafscale.server.frame_lanes import share_key
from kafscale.server.frames import (
    MIN_FRAME_BYTES,
    FrameInProgress,
    FrameLimits,
    FrameTooLargeError,
    frame_length,
    is_large,
    is_produce,
)
from kafscale.server.kept_bytes import KeptBytes
from kafscale.server.memory_turn import MemoryTurn
from kafscale.server.mute import Mute
from kafscale.server.reply_queue import ReplyQueue, ReplySlot, new_slot
from kafscale.server.reply_writer import ReplyWriter
from kafscale.serving.context import ClientSoftware
from kafscale.serving.request_throttle import RequestThrottle

LENGTH_BYTES, API_KEY_BYTES = 4, 2
MAX_UNANSWERED, MAX_READY_BYTES = 10_000, 1024 * 1024  # Produce requests; replies that await an earlier one
MAX_REQUESTS_IN_A_ROW = 100  # of a client, before others have their turn


class Connection(asyncio.BufferedProtocol):
    """Created by the listener for each client."""

    def __init__(
        self,
        host: ConnectionHost,
        listener: ListenerName = ListenerName.PLAINTEXT,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
    ) -> None:
        self._host = host
        self.listener, self.protocol, self.software = listener, protocol, ClientSoftware()
        self.access: Access = UNRESTRICTED
        self.frame_limits = FrameLimits(MIN_FRAME_BYTES, host.frame_max_bytes)
        self._gate: ConnectionGate | None = None
        self._dispatcher: RequestDispatcher
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frame: FrameInProgress | None = None
        self._handled: FrameInProgress | None = None
        self._kept = KeptBytes(host.frame_memory)
        self._replies = ReplyQueue()
        self._writer = ReplyWriter(self._replies, host, self._written)
        self._appending = self._reading_paused = self._ended = self.is_stopping = False
        self._memory = MemoryTurn(host.budget, self._go_on_soon)
        self.mute = Mute(host.metrics.connections, self._unmuted)
        self.peer_host, self.is_known = "", not protocol.is_sasl
        self._activity = Activity()
        self.connected_at_sec = self._received_sec = self.now_sec()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer_host = str(peer[0]) if peer else "unknown"
        self._writer.start(self._transport, self.peer_host)
        self._kept.share_key = share_key(self.peer_host)
        self.access = self._host.access_of(ANONYMOUS, self.peer_host)
        self._activity.moved(self._loop.time())
        if not self._host.admit(self):
            self._transport.abort()
            return
        self._gate = self._host.open_gate(self)
        self._dispatcher = self._gate or self._host.dispatcher

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._transport = None
        self._ended = True
        self._host.remove(self)
        if self._gate is not None:
            self._gate.close()
        if self._frame is not None:
            self._frame.give_back()
            self._frame = None
        self._memory.cancel()
        self.mute.close()
        self._replies.abandon()
        self._writer.close()
        if self.software.when_ended is not None:
            self.software.when_ended()
        self._kept.take()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The memory for the next bytes."""
        if self._frame is not None:
            return self._frame.room()
        host = self._host
        if (
            self._is_busy
            or not self._replies.only_produce
            or not host.budget.has_room
            or not host.frame_memory.has_room(self._kept.share_key)
        ):
            return host.small_receive_buffer
        return host.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        self._activity.moved(self._loop.time())
        self._received_sec = self.now_sec()
        if self._frame is not None:
            self._frame.filled(nbytes)
            if self._frame.is_whole:
                self._take_whole_frame(self._frame)
            elif self._frame.waits:
                self._pause_reading()
        else:
            received = self._host.receive_buffer[:nbytes]
            if self._kept.data:
                received = memoryview(self._kept.take() + bytes(received))
            self._consume(received)

    def eof_received(self) -> bool:
        """The client will send nothing more: as in Kafka, end the connection."""
        return False

    def pause_writing(self) -> None:
        """The client takes its replies more slowly than they are made."""
        self._writer.pause()

    def resume_writing(self) -> None:
        """Everything that was written has left."""
        self._writer.resume()
        self._go_on()

    def authenticated(self, principal: Principal) -> None:
        """The client is known: by its certificate, or by SASL."""
        self.access, self.is_known = self._host.access_of(principal, self.peer_host), True

    # --- frames

    def _consume(self, data: memoryview) -> None:
        """Dispatch the whole frames of `data` while the gate is open, and keep the rest."""
        position, end, requests = 0, len(data), 0
        while end - position >= LENGTH_BYTES:
            try:
                length = frame_length(data, position, self.frame_limits)
            except FrameTooLargeError as problem:
                self.refuse(problem.reason, str(problem))
                return
            start = position + LENGTH_BYTES
            if end - start < length:
                if end - start < API_KEY_BYTES:
                    break
                if not self._begin_frame(length, data[start:end]):
                    self._keep(data[position:end])
                return
            if requests == MAX_REQUESTS_IN_A_ROW:
                self._keep(data[position:end])
                self._go_on_soon()
                return
            if not self._gate_open(data[start : start + length]):
                self._keep(data[position:end])
                return
            position = start + length
            requests += 1
            self._dispatch(data[start:position], None)
            if self._ended:
                return
        if position < end:
            self._kept.keep(bytes(data[position:end]))

    def _begin_frame(self, length: int, first: memoryview) -> bool:
        """Give the frame memory of its own; False if it must wait for it: `_go_on` will be called."""
        if is_large(length) and not self._may_be_next(first):
            return False
        try:
            self._frame = self._host.frame_memory.begin(length, first, self._kept.share_key, self)
        except OSError as problem:
            self.refuse(
                FrameRefusal.TOO_LARGE, f"no memory for a frame of {length} bytes: {problem.strerror}"
            )
            return True
        if self._frame.waits:
            self._pause_reading()
        return True

    def _take_whole_frame(self, frame: FrameInProgress) -> None:
        if self._gate_open(frame.body(), is_counted=frame.is_large):
            self._frame = None
            frame.taken()
            self._dispatch(frame.body(), frame)
            if self._reading_paused:
                self._resume_reading()
        else:
            self._pause_reading()

    @property
    def takes_replies(self) -> bool:
        """True if the client reads its replies."""
        return not self._writer.is_paused

    def frame_may_go_on(self) -> None:
        """The rest of a frame that waited for memory may be received."""
        self._go_on_soon()

    def frame_overdue(self) -> None:
        """The client does not send the rest of its frame in time."""
        self.refuse(FrameRefusal.TOO_SLOW, "the rest of a frame did not come in time")

    # --- the gate

    @property
    def _is_busy(self) -> bool:
        """True if no request at all may be handled now."""
        return (
            self._writer.is_paused
            or self._appending
            or self.mute.is_on
            or len(self._replies) >= MAX_UNANSWERED
            or self._replies.ready_bytes >= MAX_READY_BYTES
        )

    def _may_be_next(self, request: memoryview) -> bool:
        """True if the connection's other requests allow this one to be handled."""
        if self._is_busy:
            return False
        return not self._replies or (is_produce(request) and self._replies.only_produce)

    def _gate_open(self, request: memoryview, *, is_counted: bool = False) -> bool:
        """True if the request may be handled now. A large frame has waited for its memory (`is_counted`)."""
        if not self._may_be_next(request):
            return False
        if is_counted or not is_produce(request):
            return True
        if self._memory.granted_bytes or self._host.budget.has_room:
            return True
        self._memory.wait(len(request))
        return False

    def _keep(self, data: memoryview) -> None:
        self._kept.keep(bytes(data))
        self._pause_reading()

    def _pause_reading(self) -> None:
        if not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    def _go_on_soon(self) -> None:
        self._loop.call_soon(self._go_on)

    def _unmuted(self) -> None:
        self._activity.moved(self._loop.time())
        self._go_on()

    def _go_on(self) -> None:
        """The gate may have opened: handle the kept bytes, then read on."""
        if not self._reading_paused or self._memory.wanted_bytes or self.is_stopping or self._ended:
            return
        if self._frame is not None:
            if self._frame.is_whole:
                self._take_whole_frame(self._frame)
            elif not self._frame.waits:
                self._resume_reading()
        elif self._kept.data:
            self._reading_paused = False
            self._consume(memoryview(self._kept.take()))
            if not self._reading_paused:
                self._resume_reading()
        else:
            self._resume_reading()

    def _resume_reading(self) -> None:
        self._reading_paused = False
        if self._transport is not None:
            self._transport.resume_reading()

    def _dispatch(self, body: memoryview, frame: FrameInProgress | None) -> None:
        self._handled = frame
        try:
            appending = self._dispatcher.dispatch(self, body)
        except Exception as problem:  # noqa: BLE001 - it is reported, and ends only this connection
            self._fail(problem)
            appending = None
        if appending is not None:
            self._appending = True
            self._host.run_request(self._finish(appending, frame))
        else:
            self._done_with(frame)

    async def _finish(self, appending: Awaitable[None], frame: FrameInProgress | None) -> None:
        try:
            await appending
        except Exception as problem:  # noqa: BLE001 - it is reported, and ends only this connection
            self._fail(problem)
        finally:
            self._appending = False
            self._done_with(frame)
        self._go_on()

    def _fail(self, problem: Exception) -> None:
        if isinstance(problem, MalformedRequestError):
            self.refuse(FrameRefusal.MALFORMED, str(problem))
        else:
            self._host.log_failure(self.peer_host, problem)
            self.abort()

    def _done_with(self, frame: FrameInProgress | None) -> None:
        """The request has been handled: its bytes are not needed any more."""
        self._handled = None
        if frame is not None:
            frame.give_back()
        if self._memory.granted_bytes:
            self._memory.cancel()

    def body_is_read(self) -> None:
        """The request's bytes are not needed any more, although its answer may take long."""
        if self._handled is not None:
            # Later, because the caller's caller has a view of them.
            self._loop.call_soon(self._handled.give_back)

    def open_slot(self, api_key: ApiKey, throttle: RequestThrottle | None = None) -> ReplySlot:
        """The place of the next reply."""
        metrics, is_produce = self._host.metrics.api(api_key), api_key is ApiKey.PRODUCE
        slot = new_slot(self, metrics, is_produce, self._received_sec, throttle)
        self._replies.add(slot)
        return slot

    def now_sec(self) -> float:
        """A monotonic clock; finer than the loop's, which stands still while a callback runs."""
        return time.perf_counter()

    def reply_ready(self, slot: ReplySlot) -> None:
        """The reply can leave when those before it have."""
        self._writer.ready(slot)

    def _written(self) -> None:
        """Replies were written: the gate may have opened."""
        if self._reading_paused and not self._appending:
            self._go_on_soon()

    # --- the end

    def is_idle_since(self, before_sec: float) -> bool:
        """True if nothing has moved since then. A slow reader of replies is not idle."""
        if self._writer.is_paused and self._transport is not None:
            self._activity.unsent(self._transport.get_write_buffer_size(), self._loop.time())
        elif self._replies or self._appending or self.mute.is_on:
            return False
        return self._activity.is_before(before_sec)

    def refuse(self, reason: FrameRefusal, problem: str) -> None:
        """Close the connection because of a frame that its client sent."""
        self._host.metrics.frame_refused(reason)
        self._host.log_refusal(reason, self.peer_host, problem)
        self.abort()

    def stop_reading(self) -> None:
        """The broker is stopping: answer the requests in flight, and handle no more."""
        self.is_stopping = True
        self._kept.take()
        self._memory.cancel()
        self._pause_reading()

    def close(self) -> None:
        """Close when every reply that may leave has left."""
        self._writer.write()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once; earlier replies have left as far as the client takes them."""
        self._writer.write()
        self._writer.stop()
        self._ended = True
        if self._transport is not None:
            self._transport.abort()

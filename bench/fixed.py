"""The raw driver for a fixed amount of work: so many requests, and the CPU of the server from before to after.

A time window cannot measure it: a broker that acknowledges by the flush answers in bursts, and a window of a second
would cut them anywhere. Here exactly the requests that were answered are counted.
"""

import select
import socket
import time
from collections.abc import Callable

from bench.wire import WireError, introduce

_RECEIVE_BYTES = 1024 * 1024
_STALL_SECONDS = 60.0

CountReplies = Callable[[memoryview], int]
"""The number of replies that are complete with these bytes."""


def exchange_many(
    address: tuple[str, int], block: bytes, in_block: int, blocks: int, ahead: int, count: CountReplies
) -> int:
    """Send `block`, which is `in_block` whole requests, `blocks` times; returns once every request is answered.

    At most `ahead` requests are unanswered, and at least one block is sent. Returns how many bytes came back.
    Raises `WireError` when the broker closes the connection or nothing moves for a minute.
    """
    with socket.create_connection(address) as connection:
        introduce(connection)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        return _pipeline(connection, memoryview(block), in_block, blocks, ahead, count)


def _pipeline(
    connection: socket.socket, block: memoryview, in_block: int, blocks: int, ahead: int, count: CountReplies
) -> int:
    room = bytearray(_RECEIVE_BYTES)
    view = memoryview(room)
    sent_of_block = begun = unanswered = received_bytes = 0
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    last_moved = time.monotonic()
    while begun < blocks or sent_of_block or unanswered:
        may_begin = begun < blocks and (not unanswered or unanswered + in_block <= ahead)
        sends = bool(sent_of_block) or may_begin
        poller.modify(connection, select.POLLIN | (select.POLLOUT if sends else 0))
        for _fd, events in poller.poll(100):
            last_moved = time.monotonic()
            if events & select.POLLOUT:
                if not sent_of_block:
                    begun += 1
                    unanswered += in_block
                sent_of_block = (sent_of_block + connection.send(block[sent_of_block:])) % len(block)
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                received = connection.recv_into(room)
                if not received:
                    raise WireError("the broker closed the connection")
                received_bytes += received
                unanswered -= count(view[:received])
        if time.monotonic() - last_moved > _STALL_SECONDS:
            raise WireError(f"no reply for {_STALL_SECONDS:.0f} s")
    return received_bytes

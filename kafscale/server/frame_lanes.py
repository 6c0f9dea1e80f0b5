"""The memory of frames that arrive in pieces, and which of them waits: decisions only, no I/O.

Theory of operation. A frame is charged for the bytes that have arrived. The length that it announces is a claim and
charges nothing. Small frames (up to 64 KiB) and large ones go in a lane each, so neither kind can use up
what is meant for the other. A lane bounds the bytes of its frames together (`limit_bytes`) and those of one peer
address (`share_bytes`). A frame that has reached a bound is not read further: it waits in the lane's line. An
address has one place in the rotation however many connections it opens, and its frames are in the order in which
they began to wait.

Frames that have half of the memory that they need could wait for one another without end. They do not, because one
frame of each lane is its *head*, to which no bound of the lane applies:

1. While a frame waits, the lane has a head: the first to wait becomes it, and when it ends, the next in the line.
2. The head is stopped by records alone, when they fill the budget. Records go away by themselves: flushes end, by
   success or by failure. While a head waits for that, whole requests are taken only up to the budget's reserve
   (a quarter), and the head goes on as soon as records take no more than half, so they cannot keep it waiting.
3. A head that may go on ends: either its bytes arrive, or it misses the deadline on its progress, and the
   connection is closed (`frames.FrameInProgress`). The clock stands still only while the broker makes a frame wait.
   A whole frame has the same deadline while others wait. A request that may wait for other clients releases its
   frame before it does.
4. When a head ends, its memory is free, and 1. is true again with one frame less in front of each that waits.

So every frame whose client sends all of it becomes whole, after at most as many deadlines as addresses and frames of
its own address are before it. Whole requests depend on none of this: the reserve is always theirs (`MemoryBudget`).
Memory is bounded by the two lanes' limits and one frame more in each.
"""

import sys
from collections.abc import Callable
from ipaddress import AddressValueError, IPv6Address
from itertools import islice
from typing import Final

from kafscale.memory.memory_budget import MemoryBudget

# Bytes charged in advance when a frame's turn has come: free memory is not promised twice.
GRANT_BYTES: Final = 256 * 1024
# Addresses whose frames are considered when memory becomes free, besides the head's.
_MAX_ADDRESSES_LOOKED_AT: Final = 64
_IPV6_NETWORK_BITS: Final = 64


def share_key(peer_host: str) -> str:
    """The share that a peer uses: its address, or the network of 64 bits that one IPv6 host usually owns."""
    if ":" not in peer_host:
        return peer_host
    try:
        address = IPv6Address(peer_host)
    except AddressValueError:
        return peer_host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{int(address) >> (128 - _IPV6_NETWORK_BITS):x}::/{_IPV6_NETWORK_BITS}"


class Passage:
    """One frame in a lane: its charged bytes, and whether it waits."""

    __slots__ = ("charged_bytes", "filled_bytes", "go_on", "is_counted", "length", "peer", "waits")

    def __init__(self, peer: str, length: int, go_on: Callable[[], None]) -> None:
        self.peer = peer
        self.length = length
        self.go_on = go_on
        self.filled_bytes = 0
        self.charged_bytes = 0
        # Whether the lane's bounds count it: the head's bytes leave room for the others.
        self.is_counted = True
        self.waits = False


class FrameLane:
    """The frames in progress of one kind."""

    def __init__(
        self, budget: MemoryBudget, *, limit_bytes: int, share_bytes: int, left_free_bytes: int = 0
    ) -> None:
        """`left_free_bytes`: the part of the budget that frames other than the head leave free."""
        self._budget = budget
        self._limit_bytes = limit_bytes
        self._share_bytes = share_bytes
        self._left_free_bytes = left_free_bytes
        self._counted_bytes = 0
        self._by_peer: dict[str, int] = {}
        self._line: dict[str, dict[Passage, None]] = {}
        self._head: Passage | None = None
        budget.subscribe_freed(self._serve)

    def has_room(self, peer: str) -> bool:
        """True if this peer is below its bounds, so that many bytes may be received at once."""
        return self._counted_bytes < self._limit_bytes and self._by_peer.get(peer, 0) < self._share_bytes

    @property
    def is_short(self) -> bool:
        """True if a frame waits for others to end."""
        return bool(self._line)

    def room_bytes(self, passage: Passage) -> int:
        """The bytes of the frame that may be received now."""
        rest = passage.length - passage.filled_bytes
        granted = passage.charged_bytes - passage.filled_bytes
        free = self._head_free_bytes if passage is self._head else self._free_bytes(passage.peer)
        return min(rest, granted + free)

    def received(self, passage: Passage, size_bytes: int) -> bool:
        """Count bytes that have arrived. False if nothing more may be received: the frame waits now, or is whole."""
        passage.filled_bytes += size_bytes
        if passage.filled_bytes > passage.charged_bytes:
            self._charge(passage, passage.filled_bytes - passage.charged_bytes)
        if passage.filled_bytes == passage.length:
            return False
        return self.room_bytes(passage) > 0 or self._wait(passage)

    def end(self, passage: Passage) -> None:
        """Release the frame's memory."""
        self._leave_line(passage)
        if passage is self._head:
            self._head = None
        if passage.is_counted:
            self._count(passage.peer, -passage.charged_bytes)
        charged, passage.charged_bytes = passage.charged_bytes, 0
        self._budget.release_frame(charged)

    def keep(self, peer: str, size_bytes: int) -> None:
        """Count bytes that a connection keeps of requests that it may not handle yet; less, if negative."""
        self._count(peer, size_bytes)
        if size_bytes > 0:
            self._budget.charge_frame(size_bytes)
        else:
            self._budget.release_frame(-size_bytes)

    # --- bounds

    @property
    def _head_free_bytes(self) -> int:
        """Bytes that the head may take: without a bound while records leave half of the budget."""
        budget = self._budget
        return sys.maxsize if budget.record_bytes <= budget.limit_bytes // 2 else budget.free_bytes

    def _free_bytes(self, peer: str) -> int:
        return max(
            0,
            min(
                self._limit_bytes - self._counted_bytes,
                self._share_bytes - self._by_peer.get(peer, 0),
                self._budget.free_bytes - self._left_free_bytes,
            ),
        )

    def _charge(self, passage: Passage, size_bytes: int) -> None:
        passage.charged_bytes += size_bytes
        if passage.is_counted:
            self._count(passage.peer, size_bytes)
        self._budget.charge_frame(size_bytes)

    def _count(self, peer: str, size_bytes: int) -> None:
        self._counted_bytes += size_bytes
        of_peer = self._by_peer.get(peer, 0) + size_bytes
        if of_peer:
            self._by_peer[peer] = of_peer
        else:
            self._by_peer.pop(peer, None)

    # --- the line

    def _wait(self, passage: Passage) -> bool:
        """Put the passage into the line; True if it need not wait after all."""
        if self._head is None:
            self._make_head(passage)
        if passage is self._head:
            if self._head_free_bytes:
                return True
            self._budget.waiting_frames += 1
        else:
            self._line.setdefault(passage.peer, {})[passage] = None
        passage.waits = True
        if self._budget.record_bytes and not self._budget.free_bytes:
            self._budget.report_shortage()
        return not passage.waits

    def _make_head(self, passage: Passage) -> None:
        self._head = passage
        passage.is_counted = False
        self._count(passage.peer, -passage.charged_bytes)

    def _leave_line(self, passage: Passage) -> None:
        if not passage.waits:
            return
        passage.waits = False
        if passage is self._head:
            self._budget.waiting_frames -= 1
            return
        of_peer = self._line[passage.peer]
        del of_peer[passage]
        if not of_peer:
            del self._line[passage.peer]

    def _serve(self) -> None:
        """Memory is free: continue the frames that fit."""
        head = self._head
        if head is not None and head.waits and self._head_free_bytes:
            self._continue(head)
        if not self._line:
            return
        if head is None:
            self._next_head()
        for peer in list(islice(self._line, _MAX_ADDRESSES_LOOKED_AT)):
            self._serve_peer(peer)

    def _next_head(self) -> None:
        """The first frame of the address whose turn it is, which then goes to the end of the rotation."""
        peer, of_peer = next(iter(self._line.items()))
        passage = next(iter(of_peer))
        self._leave_line(passage)
        if peer in self._line:
            self._line[peer] = self._line.pop(peer)
        self._make_head(passage)
        if self._head_free_bytes:
            passage.go_on()
        else:
            passage.waits = True
            self._budget.waiting_frames += 1

    def _serve_peer(self, peer: str) -> None:
        while peer in self._line:
            passage = next(iter(self._line[peer]))
            grant = min(GRANT_BYTES, passage.length - passage.filled_bytes)
            if grant > self._free_bytes(peer):
                return
            self._charge(passage, grant)
            self._continue(passage)

    def _continue(self, passage: Passage) -> None:
        self._leave_line(passage)
        passage.go_on()

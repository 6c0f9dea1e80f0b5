"""Rounds that measure the CPU of a request and of a GB at the broker and at the no-op server, in turns.

The same prebuilt frames go to both, a fixed number of them, and the CPU of the server's process is read before the
first and after the last reply.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import Broker
from bench.cost_ratios import FETCH, FIGURES, FRAMES, TINY, Costs, Figure
from bench.fixed import CountReplies, exchange_many
from bench.kafscale_broker import Kafscale
from bench.noop_broker import NoOp
from bench.payloads import RANDOM, record_pool
from bench.process import process_cpu
from bench.replies import FrameCounter, ProduceReplies
from bench.wire import FetchPlace, WireError, check_fetch_reply, fetch_frame, produce_frame

SETTINGS = {
    # With it acknowledgements come sooner, and the rounds are shorter.
    "KAFSCALE_FLUSH_INTERVAL_MS": "100",
    # Full after the warm-up: later no memory is touched for the first time, whose price differs by machine.
    "KAFSCALE_CACHE_SIZE": str(64 * 1024 * 1024),
    # Its work would fall into the load that runs at that time.
    "KAFSCALE_MERGE_BYTES_PER_SEC": "0",
}
"""All other settings have their defaults."""

_TOPICS = ("tiny", "frames")
_GB = 1e9
_FETCH_BYTES = 1050 * 1000
_WAIT_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`in_block` requests leave at once; so many blocks, at most `ahead` requests unanswered."""

    in_block: int
    blocks: int
    ahead: int

    @property
    def requests(self) -> int:
        """The number of requests in all."""
        return self.in_block * self.blocks


_LOADS = {
    # So many that each takes 0.2 to 0.6 s of CPU, which /proc counts in hundredths.
    TINY: (Load(in_block=100, blocks=160, ahead=8_000), Load(in_block=400, blocks=1_500, ahead=8_000)),
    FRAMES: (Load(in_block=1, blocks=300, ahead=32), Load(in_block=1, blocks=4_000, ahead=32)),
    FETCH: (Load(in_block=1, blocks=1_500, ahead=4), Load(in_block=1, blocks=2_500, ahead=4)),
}
_WARM_UP = {TINY: (1, 1), FRAMES: (2, 8), FETCH: (8, 8)}


class CostRounds:
    """Both servers, running. `costs` grows by a sample of each figure with every round."""

    def __init__(self, ours: Broker, ceiling: Broker) -> None:
        self._ours = ours
        self._ceiling = ceiling
        self._tiny = produce_frame("tiny", 0, record_pool(RANDOM, 100)[:1], correlation_id=0)
        self._large = produce_frame("frames", 0, record_pool(RANDOM, 1024)[:1000], correlation_id=0)
        self.costs = {figure: Costs() for figure in FIGURES}

    def warm_up(self) -> None:
        """Runs each load in small, unmeasured."""
        for figure, parts in _WARM_UP.items():
            for server, load, part in zip((self._ours, self._ceiling), _LOADS[figure], parts, strict=True):
                small = Load(in_block=load.in_block, blocks=load.blocks // part, ahead=load.ahead)
                self._cpu_of_unit(figure, server, small)

    def measure(self) -> None:
        """One round: each figure for the broker and then for the ceiling."""
        for figure, (ours, ceiling) in _LOADS.items():
            self.costs[figure].ours.append(self._cpu_of_unit(figure, self._ours, ours))
            self.costs[figure].ceiling.append(self._cpu_of_unit(figure, self._ceiling, ceiling))

    def _cpu_of_unit(self, figure: Figure, server: Broker, load: Load) -> float:
        """CPU seconds of the server per request or GB."""
        match figure.name:
            case TINY.name:
                return self._run(server, self._tiny, load, _produce_counter)[0] / load.requests
            case FRAMES.name:
                cpu, _ = self._run(server, self._large, load, _produce_counter)
                return cpu / (load.requests * len(self._large) / _GB)
            case FETCH.name:
                cpu, received_bytes = self._run(server, self._fetch(server), load, _fetch_counter)
                return cpu / (received_bytes / _GB)
            case unknown:
                raise ValueError(f"figure {unknown!r} is unknown; legal: {[one.name for one in FIGURES]}")

    def _fetch(self, server: Broker) -> bytes:
        """A Fetch of the newest 1 MiB."""
        offset = 0
        if server.speaks_kafka:
            with server.client() as client:
                offset = client.log_end_offset("frames", 0) - 1000
        place = FetchPlace(topic="frames", partition=0, offset=offset)
        return fetch_frame([place], max_bytes=_FETCH_BYTES, max_wait_ms=_WAIT_MS)

    @staticmethod
    def _run(
        server: Broker, frame: bytes, load: Load, counter: Callable[[bytes], CountReplies]
    ) -> tuple[float, int]:
        """CPU seconds, and the number of bytes that came back."""
        with server.client() as client:
            first = client.exchange(frame)
        count = counter(first)
        before = process_cpu(server.pid)
        received_bytes = exchange_many(
            (server.host, server.port), frame * load.in_block, load.in_block, load.blocks, load.ahead, count
        )
        spent = process_cpu(server.pid) - before
        if received_bytes != len(first) * load.requests:
            raise WireError(f"{load.requests} replies of {len(first)} bytes came to {received_bytes} bytes")
        return spent.total, received_bytes


def _produce_counter(first: bytes) -> CountReplies:
    replies = ProduceReplies(first)
    return lambda received: replies.count(bytes(received))


def _fetch_counter(first: bytes) -> CountReplies:
    check_fetch_reply(first)
    return FrameCounter().count


@contextmanager
def cost_rounds(work_dir: Path) -> Iterator[CostRounds]:
    """Both servers started and warmed up, on free ports and data folders below `work_dir`."""
    ours, ceiling = Kafscale(work_dir, SETTINGS), NoOp(work_dir)
    try:
        ours.start()
        ceiling.start()
        with ours.client() as client:
            for topic in _TOPICS:
                client.create_topic(topic, 1)
        rounds = CostRounds(ours, ceiling)
        rounds.warm_up()
        yield rounds
    finally:
        ours.remove()
        ceiling.remove()

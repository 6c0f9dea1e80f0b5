"""Lanes of frames in progress: their bounds, whose turn it is, and that frames never wait for one another."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.memory.memory_budget import MemoryBudget
from kafscale.server.frame_lanes import FrameLane, Passage, share_key

KIB = 1024
MIN_ROOM_BYTES = 4 * KIB
DEADLINE_ROUNDS = 20
MOST_ROUNDS = 5000


class Client:
    """Sends one frame through a lane, as a connection reads it."""

    def __init__(self, lane: FrameLane, peer: str, length: int) -> None:
        self._lane = lane
        self.passage = Passage(peer, length, lambda: None)

    @property
    def is_whole(self) -> bool:
        return self.passage.filled_bytes == self.passage.length

    def send(self, size_bytes: int) -> int:
        """Send so much, as far as it is read; returns how much was read at once."""
        if self.passage.waits or self.is_whole:
            return 0
        rest = self.passage.length - self.passage.filled_bytes
        room = max(self._lane.room_bytes(self.passage), MIN_ROOM_BYTES)
        taken = min(size_bytes, rest, room)
        self._lane.received(self.passage, taken)
        return taken

    def send_all(self) -> None:
        """Send until the frame is whole or has to wait."""
        while self.send(self.passage.length):
            pass

    def end(self) -> None:
        self._lane.end(self.passage)


def a_lane(
    limit_bytes: int = 100 * KIB, share_bytes: int = 50 * KIB, budget_bytes: int = 400 * KIB
) -> tuple[MemoryBudget, FrameLane]:
    budget = MemoryBudget(budget_bytes)
    return budget, FrameLane(budget, limit_bytes=limit_bytes, share_bytes=share_bytes)


def test_a_frame_is_charged_for_what_arrives() -> None:
    budget, lane = a_lane()
    client = Client(lane, "a", 10_000 * KIB)
    client.send(16)
    assert (budget.used_bytes, budget.frame_bytes) == (16, 16)
    client.end()
    assert (budget.used_bytes, budget.frame_bytes) == (0, 0)


def test_an_address_at_its_share_waits_and_others_do_not() -> None:
    _, lane = a_lane()
    greedy = [Client(lane, "a", 1000 * KIB) for _ in range(3)]
    for client in greedy:
        client.send(40 * KIB)
    assert not greedy[0].passage.waits
    assert greedy[1].passage.filled_bytes == 10 * KIB or greedy[1].passage is lane._head
    assert greedy[2].passage.waits or greedy[1].passage.waits
    other = Client(lane, "b", 40 * KIB)
    other.send_all()
    assert other.is_whole


def test_the_head_exceeds_the_share_and_the_next_follows() -> None:
    _, lane = a_lane()
    clients = [Client(lane, "a", 200 * KIB) for _ in range(4)]
    for client in clients:
        client.send(45 * KIB)
    for _ in clients:
        for client in clients:
            client.send_all()
        (whole,) = [client for client in clients if client.is_whole and client.passage.charged_bytes]
        whole.end()
    assert all(client.is_whole for client in clients)


def test_addresses_take_turns_as_heads() -> None:
    _, lane = a_lane(limit_bytes=20 * KIB, share_bytes=20 * KIB)
    greedy = [Client(lane, "a", 100 * KIB) for _ in range(50)]
    for client in greedy:
        client.send_all()
    polite = Client(lane, "b", 100 * KIB)
    polite.send_all()
    assert polite.passage.waits
    ended = 0
    while not polite.is_whole:
        (head,) = [client for client in greedy if client.is_whole and client.passage.charged_bytes]
        head.end()
        ended += 1
        polite.send_all()
        for client in greedy:
            client.send_all()
    assert ended <= 2


def test_the_head_waits_for_records_with_the_reserve_kept() -> None:
    budget, lane = a_lane(budget_bytes=400 * KIB)
    budget.charge(400 * KIB)
    client = Client(lane, "a", 100 * KIB)
    client.send_all()
    assert client.passage.waits
    assert budget.waiting_frames == 1
    budget.release(190 * KIB)
    client.send_all()
    assert client.is_whole
    assert budget.waiting_frames == 0


def test_a_frame_that_waits_for_records_reports_a_shortage() -> None:
    budget, lane = a_lane(budget_bytes=400 * KIB)
    asked = []
    budget.subscribe_shortage(lambda: asked.append(True))
    first, second = Client(lane, "a", 1000 * KIB), Client(lane, "a", 1000 * KIB)
    for client in (first, second):
        client.send(50 * KIB)
        client.send(10 * KIB)
    assert not asked  # a share is used up: flushing frees nothing of it
    budget.charge(400 * KIB)
    Client(lane, "b", 1000 * KIB).send(10 * KIB)
    assert asked


def test_a_frame_that_leaves_the_line_is_forgotten() -> None:
    budget, lane = a_lane(limit_bytes=10 * KIB, share_bytes=10 * KIB)
    clients = [Client(lane, peer, 100 * KIB) for peer in "abc"]
    for client in clients:
        client.send(10 * KIB)
        client.send(10 * KIB)
    clients[1].end()
    clients[0].end()
    clients[2].send_all()
    assert clients[2].is_whole
    clients[2].end()
    assert (budget.used_bytes, lane._line, lane._by_peer, lane._head) == (0, {}, {}, None)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 30), silent=st.floats(0, 0.6), with_records=st.booleans())
def test_every_frame_whose_client_sends_it_becomes_whole(
    seed: int, silent: float, with_records: bool
) -> None:
    """Silent clients end by their deadline; records go away by themselves, and others fill what is free."""
    chance = random.Random(seed)
    budget = MemoryBudget(1024 * KIB)
    lane = FrameLane(
        budget, limit_bytes=384 * KIB, share_bytes=192 * KIB, left_free_bytes=budget.reserve_bytes
    )
    lengths = [chance.choice((70, 300, 2000)) * KIB for _ in range(30)]
    clients = [Client(lane, chance.choice("abcde"), length) for length in lengths]
    stops_at = {
        client: chance.randrange(1, client.passage.length) for client in clients if chance.random() < silent
    }
    silent_rounds = dict.fromkeys(stops_at, 0)
    open_ones, records, rounds = list(clients), 0, 0
    while open_ones:
        rounds += 1
        assert rounds < MOST_ROUNDS, "they wait for one another"
        chance.shuffle(open_ones)
        for client in list(open_ones):
            left = stops_at.get(client, client.passage.length) - client.passage.filled_bytes
            if left > 0:
                client.send(min(left, chance.choice((4, 64, 1000)) * KIB))
            elif not client.passage.waits:
                silent_rounds[client] += 1
            if client.is_whole and with_records:
                budget.charge(client.passage.length)
                records += client.passage.length
            if client.is_whole or silent_rounds.get(client, 0) > DEADLINE_ROUNDS:
                open_ones.remove(client)
                client.end()
        assert budget.frame_bytes <= 384 * KIB + max(lengths) + len(clients) * 10 * MIN_ROOM_BYTES
        flushed = min(records, 200 * KIB)
        records -= flushed
        budget.release(flushed)
        while with_records and budget.has_room:
            budget.charge(100 * KIB)  # others produce whole requests all the time
            records += 100 * KIB
    assert (budget.frame_bytes, lane._line, lane._head, budget.waiting_frames) == (0, {}, None, 0)


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "20010db800010002::/64"),
        ("2001:db8:1:2::7", "20010db800010002::/64"),
        ("fe80::1%eth0", "fe80000000000000::/64"),
        ("unknown", "unknown"),
    ],
)
def test_a_share_belongs_to_an_address_or_an_ipv6_network(host: str, key: str) -> None:
    assert share_key(host) == key

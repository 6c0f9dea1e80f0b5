"""Work on a thread: one piece at a time, and what it uses is given back when it ends, not when nobody waits."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from kafscale.tasks.thread_turns import ThreadTurns
from tests.support.in_process_broker import until
from tests.support.waiting import PATIENCE_SEC


class Piece:
    """Work that ends when it is told to."""

    def __init__(self, result: Callable[[], int] = lambda: 7) -> None:
        self.began, self.may_end, self.has_ended = threading.Event(), threading.Event(), False
        self.result = result

    def work(self) -> int:
        self.began.set()
        assert self.may_end.wait(PATIENCE_SEC)
        return self.result()

    def ended(self) -> None:
        self.has_ended = True


def failing() -> int:
    raise ValueError("a defect")


async def test_second_piece_begins_when_the_first_has_ended() -> None:
    turns, pieces = ThreadTurns(), [Piece(), Piece()]
    calls = [asyncio.create_task(turns.run(piece.work, piece.ended)) for piece in pieces]
    await until(pieces[0].began.is_set, "the first begins")
    assert not pieces[1].began.is_set()
    for piece in pieces:
        piece.may_end.set()
    assert await asyncio.gather(*calls) == [7, 7]
    assert [piece.has_ended for piece in pieces] == [True, True]


@pytest.mark.parametrize("result", [lambda: 7, failing])
async def test_cancelled_piece_keeps_its_turn_until_its_thread_ends(result: Callable[[], int]) -> None:
    turns, first, second, never = ThreadTurns(), Piece(result), Piece(), Piece()
    cancelled = asyncio.create_task(turns.run(first.work, first.ended))
    await until(first.began.is_set, "the first begins")
    waiting = asyncio.create_task(turns.run(never.work, never.ended))
    following = asyncio.create_task(turns.run(second.work, second.ended))
    await asyncio.sleep(0)
    for call in (cancelled, waiting):
        call.cancel()
        await asyncio.wait([call])
    assert (never.has_ended, never.began.is_set()) == (True, False)
    assert (first.has_ended, second.began.is_set()) == (False, False)
    first.may_end.set()
    second.may_end.set()
    assert await following == 7
    assert first.has_ended


async def test_piece_that_fails_says_so_to_its_caller() -> None:
    turns, piece = ThreadTurns(), Piece(failing)
    piece.may_end.set()
    with pytest.raises(ValueError, match="a defect"):
        await turns.run(piece.work, piece.ended)
    assert piece.has_ended
    assert await turns.run(lambda: 3) == 3

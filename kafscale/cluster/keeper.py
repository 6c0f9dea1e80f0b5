"""Keeps what this broker owns equal to what it should own: claims what is vacant, resigns what is another's.

Partitions and group shards are kept alike. Nothing here decides by time: whatever changes in the view of the
cluster leads to a pass, which compares who owns an item with who should.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kafscale.errors import LeaseEndedError
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

RETRY_DELAY_SEC = 30
LOOK_AGAIN_SEC = 2.0
"""The delay until an item is looked at again that could not be claimed: the view may not show its owner.

A watch that breaks begins again with a snapshot: an owner that came and went in between is never shown, and
neither is that the item is free.
"""


@dataclass(frozen=True, slots=True)
class Wanted(Generic[Item]):
    """The broker that should own an item, and the one that does by the metadata store (None: no broker)."""

    item: Item
    preferred: int | None
    owner: int | None


class Assignment(Protocol[Item]):
    """The preferred and the actual owners of the items."""

    def changed(self) -> Iterable[Wanted[Item]]:
        """Every item of which anything may have changed since the last call, or the first of very many."""

    def has_more(self) -> bool:
        """True if `changed` has more to name already."""

    def reconsider(self, items: Iterable[Item]) -> None:
        """Name these items again at the next `changed`."""


class Owner(Protocol[Item]):
    """The items that this broker owns, and the moves."""

    def owns(self, item: Item) -> bool:
        """True if this broker owns the item."""

    async def claim(self, items: set[Item]) -> None:
        """Own those of the items that no broker owns. Raises `LeaseEndedError`."""

    async def resign(self, items: set[Item]) -> None:
        """Own the items no longer, so that others can; returns once they can."""

    async def release_stale(self, items: set[Item]) -> None:
        """Release items whose owner key is under this broker's lease although it does not own them."""


class Keeper(Generic[Item]):
    """Makes the moves for one kind of items.

    What changes about an item while it is moved is looked at afterwards, and what was not claimed a little
    later. Nothing else is done again: a move shows in the view of the cluster, and that leads to the next pass.
    """

    def __init__(self, name: str, broker_id: int, assignment: Assignment[Item], owner: Owner[Item]) -> None:
        self._name = name
        self._broker_id = broker_id
        self._assignment = assignment
        self._owner = owner
        self._busy: set[Item] = set()
        self._missed: set[Item] = set()
        self._moves = TaskOwner()
        self._pass: asyncio.Handle | None = None
        self._closed = False

    def poke(self) -> None:
        """Something has changed: look at it before long."""
        if self._pass is None and not self._closed:
            self._pass = asyncio.get_running_loop().call_soon(self.look)

    def look(self) -> None:
        """Look at what has changed and begin the moves that it takes."""
        self._pass = None
        vacant: set[Item] = set()
        misplaced: set[Item] = set()
        stale: set[Item] = set()
        for wanted in self._assignment.changed():
            if wanted.item in self._busy:
                self._missed.add(wanted.item)
                continue
            if self._owner.owns(wanted.item):
                if wanted.preferred not in (None, self._broker_id):
                    misplaced.add(wanted.item)
            elif wanted.owner == self._broker_id:
                stale.add(wanted.item)
            elif wanted.owner is None and wanted.preferred == self._broker_id:
                vacant.add(wanted.item)
        self._begin(vacant, self._claim)
        self._begin(misplaced, self._owner.resign)
        self._begin(stale, self._owner.release_stale)
        if self._assignment.has_more():  # Others have their turn in between.
            self.poke()

    async def _claim(self, items: set[Item]) -> None:
        await self._owner.claim(items)
        not_claimed = {item for item in items if not self._owner.owns(item)}
        if not_claimed:
            asyncio.get_running_loop().call_later(LOOK_AGAIN_SEC, self._look_again, not_claimed)

    def _look_again(self, items: set[Item]) -> None:
        self._assignment.reconsider(items)
        self.poke()

    def _begin(self, items: set[Item], move: Callable[[set[Item]], Awaitable[None]]) -> None:
        if not items:
            return
        self._busy |= items
        self._moves.spawn(self._run(items, move), f"keep {self._name}")

    async def _run(self, items: set[Item], move: Callable[[set[Item]], Awaitable[None]]) -> None:
        try:
            await move(items)
        except LeaseEndedError as problem:
            logger.info("could not move %s, the next registration will: %s", self._name, problem)
        except Exception:
            # A defect. Not again at once: every attempt that goes half way makes the next one due.
            logger.exception("could not move %s, trying again in %d s", self._name, RETRY_DELAY_SEC)
            self._missed |= items
            asyncio.get_running_loop().call_later(RETRY_DELAY_SEC, self._moved, items)
            return
        self._moved(items)

    def _moved(self, items: set[Item]) -> None:
        self._busy -= items
        missed = self._missed & items
        self._missed -= items
        if missed and not self._closed:
            self._look_again(missed)

    async def settled(self) -> None:
        """Wait until there is nothing more to move, as far as this broker knows."""
        while self._moves or self._pass is not None:
            await self._moves.wait()
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Begin nothing more, and cancel the moves in progress."""
        self._closed = True
        if self._pass is not None:
            self._pass.cancel()
        await self._moves.close()

"""An order of a test that something goes wrong so many times, and the orders that are in force. Pure.

Any thread orders; the event loop's thread carries out.
"""

import threading
from collections.abc import Callable
from typing import Generic, Self, TypeVar


class Fault:
    """One order, until it has been carried out `times` times or is removed; None: as long as it is not removed.

    As a context manager it is removed at the end of the block.
    """

    def __init__(self, name: str, times: int | None) -> None:
        """Raises `ValueError` for a number of times that is below 1."""
        if times is not None and times < 1:
            raise ValueError(
                f"times={times} is not legal: at least 1, or None for as long as it is not removed"
            )
        self._name = name
        self._left = times
        self._hits = 0
        self._changed = threading.Condition()
        self.ended: Callable[[], None] = lambda: None

    @property
    def hits(self) -> int:
        """How often it has been carried out."""
        return self._hits

    def take(self) -> bool:
        """It is carried out; False if it is not in force any more."""
        with self._changed:
            if self._left == 0:
                return False
            if self._left is not None:
                self._left -= 1
            self._hits += 1
            is_over = self._left == 0
            self._changed.notify_all()
        if is_over:
            self.ended()
        return True

    def wait_for_hits(self, hits: int = 1, timeout_sec: float = 10.0) -> None:
        """Wait until it has been carried out so often. Raises `TimeoutError`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._hits >= hits, timeout_sec):
                raise TimeoutError(
                    f"{self._name} was hit {self._hits} times after {timeout_sec} s, not {hits}"
                )

    def remove(self) -> None:
        """It is not carried out any more. No error if it is over already."""
        with self._changed:
            self._left = 0
        self.ended()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.remove()


F = TypeVar("F", bound=Fault)


class Faults(Generic[F]):
    """Orders of one kind. `rules`: those in force, the oldest first."""

    def __init__(self) -> None:
        self.rules: tuple[F, ...] = ()
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Remove all."""
        for rule in self.rules:
            rule.remove()

    def _add(self, rule: F) -> None:
        rule.ended = lambda: self._remove(rule)
        with self._lock:
            self.rules = (*self.rules, rule)

    def _remove(self, rule: F) -> None:
        with self._lock:
            self.rules = tuple(one for one in self.rules if one is not rule)

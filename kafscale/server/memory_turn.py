"""A connection's place in the line for memory, and the memory granted there."""

from collections.abc import Callable

from kafscale.memory.memory_budget import MemoryBudget


class MemoryTurn:
    """At most one request of a connection waits for memory, or has been granted it."""

    __slots__ = ("_budget", "_on_granted", "granted_bytes", "wanted_bytes")

    def __init__(self, budget: MemoryBudget, on_granted: Callable[[], None]) -> None:
        self._budget = budget
        self._on_granted = on_granted
        self.wanted_bytes = 0
        self.granted_bytes = 0

    def wait(self, size_bytes: int) -> None:
        """Wait in line for so many bytes; `on_granted` is called when the budget has charged them."""
        self.wanted_bytes = size_bytes
        self._budget.when_free(size_bytes, self._granted)

    def cancel(self) -> None:
        """Stop waiting, and release memory that was granted."""
        if self.wanted_bytes:
            self.wanted_bytes = 0
            self._budget.forget(self._granted)
        if self.granted_bytes:
            granted_bytes, self.granted_bytes = self.granted_bytes, 0
            self._budget.release(granted_bytes)

    def _granted(self) -> None:
        self.granted_bytes, self.wanted_bytes = self.wanted_bytes, 0
        self._on_granted()

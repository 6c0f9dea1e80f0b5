"""Functions that are called at each change of something."""

from collections.abc import Callable
from typing import Generic, TypeVar

from kafscale.ops.item_failures import ItemFailures

Listener = TypeVar("Listener", bound=Callable[..., None])


class Listeners(Generic[Listener]):
    """Those of one kind of change. One that raises is reported to `failures`; the others are called all the same."""

    def __init__(self, failures: ItemFailures) -> None:
        self._failures = failures
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` from now on, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def notify(self, *change: object) -> None:
        """Call each listener, in the order in which they were added."""
        for listener in tuple(self._listeners):
            try:
                listener(*change)
            except Exception as problem:  # noqa: BLE001 - reported
                self._failures.report(change, problem)

"""SIGTERM and SIGINT stop an export after the commit in progress; a second one ends it at once."""

import contextlib
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None], say: Callable[[str], None]) -> Iterator[None]:
    """Call `stop`, from a signal handler, when the first of the signals arrives within the block."""

    def handle(number: int, _: object) -> None:
        say(
            f"{signal.Signals(number).name}: stopping after the commit in progress; once more to stop at once"
        )
        stop()
        for one, before in previous.items():
            signal.signal(one, before)

    previous = {one: signal.signal(one, handle) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for one, before in previous.items():
            signal.signal(one, before)

"""Something happens to a topic just while an export reads it: the reads are held in flight."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.object_store_proxy import Fault, FaultKind, ObjectStoreProxy
from tests.support.waiting import wait_until

# The reader may be an export that starts a Spark and its executors first: as long as one of those has in all.
TIMEOUT_SEC = 600.0
SEGMENTS = r"\.kfs$"


@contextmanager
def while_segments_are_read(
    proxy: ObjectStoreProxy, act: Callable[[], None], *, pattern: str = SEGMENTS
) -> Iterator[None]:
    """Within the block the first read of a segment waits until `act`, on a thread, is done; then all go on.

    `pattern`: of the keys whose reads wait. Raises what `act` raises, and AssertionError when nothing was read.
    """
    problems: list[BaseException] = []
    block_ended = threading.Event()

    def meddle() -> None:
        try:
            wait_until(lambda: proxy.held or block_ended.is_set(), "a segment is read", TIMEOUT_SEC)
            assert proxy.held, "nothing read a segment"
            act()
        except BaseException as problem:  # noqa: BLE001 - raised again at the end of the block
            problems.append(problem)
        finally:
            proxy.clear()
            proxy.release()

    proxy.inject(
        Fault(
            kind=FaultKind.DELAY,
            methods=frozenset({"GET"}),
            pattern=pattern,
            seconds=(TIMEOUT_SEC, TIMEOUT_SEC),
        )
    )
    thread = threading.Thread(target=meddle, name="meddler")
    thread.start()
    try:
        yield
    finally:
        block_ended.set()
        thread.join()
    if problems:
        raise problems[0]

"""Ports that no other test process picks, and that stay ours over a restart."""

import atexit
import fcntl
import itertools
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Below the range from which the kernel takes ports for outgoing connections: a broker that is stopped and
# started again must find its port free.
FIRST_PORT, LAST_PORT = 20_000, 32_000
SHARES = 60  # test processes at once on one machine, of whatever checkout; each has 200 ports


class Share:
    """One of `SHARES` parts of the ports, owned by this process until it ends: a lock on a file says so.

    What `free_port` gives is bound a moment later. Two processes that pick from the same ports, or one that picks at
    random, would give a port twice every now and then.
    """

    def __init__(self, folder: Path, shares: int = SHARES) -> None:
        folder.mkdir(exist_ok=True)
        # Not from `random`: pytest-randomly seeds it alike in every worker.
        first = random.SystemRandom().randrange(shares)
        for number in [*range(first, shares), *range(first)]:
            lock = (folder / f"{number}.lock").open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            self.number, self._lock = number, lock
            break
        else:
            raise AssertionError(f"{shares} test processes run already, as {folder} says")
        size = (LAST_PORT - FIRST_PORT) // shares
        self.ports = range(FIRST_PORT + number * size, FIRST_PORT + (number + 1) * size)

    def close(self) -> None:
        """Release the share."""
        self._lock.close()


_share: tuple[int, Iterator[int]] | None = None


def free_port() -> int:
    """A port on 127.0.0.1 on which nothing listens, of this process's share."""
    for port in _ports_of_this_process():
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable: the ports begin again at their end")


def _ports_of_this_process() -> Iterator[int]:
    global _share
    if _share is None or _share[0] != os.getpid():  # a fork must not pick from its parent's ports
        share = Share(Path(tempfile.gettempdir()) / f"kafscale-test-ports-{os.getuid()}")
        atexit.register(share.close)  # until then nothing else keeps it
        _share = os.getpid(), itertools.cycle(share.ports)
    return _share[1]

"""Many brokers, one after the other, leave nothing behind."""

import gc
import os
import socket
import struct
import sys
import threading

from kafscale.testing import KafkaBroker
from tests.support.nightly import by_day

BROKERS = by_day(15, by_night=200)
WARM_UP = 5
# Less than a single broker: one that stays has some 4,000.
MOST_BLOCKS = 3_000


def _open_files() -> int:
    gc.collect()  # what earlier tests left in circles has files, too
    return len(os.listdir("/dev/fd"))


def _one() -> None:
    with KafkaBroker() as broker:
        broker.create_topic("orders")
        broker.produce("orders", "x")
        with socket.create_connection((broker.host, broker.port)) as connected:
            request = struct.pack(">hhih", 18, 0, 1, -1)  # ApiVersions
            connected.sendall(struct.pack(">i", len(request)) + request)
            assert connected.recv(4, socket.MSG_WAITALL)


def _blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


def test_many_brokers_leave_nothing() -> None:
    for _ in range(WARM_UP):
        _one()
    threads, files, blocks = set(threading.enumerate()), _open_files(), _blocks()
    for _ in range(BROKERS - WARM_UP):
        _one()
    assert set(threading.enumerate()) <= threads
    assert _open_files() == files
    assert _blocks() - blocks < MOST_BLOCKS


def test_a_killed_and_restarted_broker_leaves_nothing() -> None:
    with KafkaBroker() as broker:
        broker.create_topic("orders")
        for _ in range(3):
            broker.kill()
            broker.restart()
        files, blocks = _open_files(), _blocks()
        for _ in range(10):
            broker.kill()
            broker.restart()
        assert _open_files() == files
        assert _blocks() - blocks < MOST_BLOCKS

"""The broker of the hard group tests: ours, or with KAFSCALE_TEST_PEER=kafka a real Apache Kafka."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.tools import java_missing
from tests.support.apache_kafka import ApacheKafka
from tests.support.broker import KafscaleBroker

Peer = KafscaleBroker | ApacheKafka


def peer_kind() -> str:
    """`kafscale` or `kafka`."""
    kind = os.environ.get("KAFSCALE_TEST_PEER", "kafscale")
    assert kind in ("kafscale", "kafka"), f"KAFSCALE_TEST_PEER={kind!r}: kafscale or kafka"
    return kind


@contextlib.contextmanager
def group_peer(folder: Path, **settings: Any) -> Iterator[Peer]:
    """A running broker with these settings; at the end it must stop cleanly if it still runs."""
    peer: Peer
    if peer_kind() == "kafka":
        reason = java_missing()
        if reason:
            pytest.skip(reason)
        peer = ApacheKafka(folder, offsets_topic_num_partitions=1, **settings)
    else:
        peer = KafscaleBroker(folder, flush_interval_ms=5, **settings)
    try:
        peer.start()
        yield peer
        if peer.exit_code is None:
            peer.stop()
    finally:
        peer.close()

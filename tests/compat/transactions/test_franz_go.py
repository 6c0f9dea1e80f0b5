"""franz-go: a chain of topics, each copied to the next in transactions by a group, as kgo's own TestTxnEtl."""

from collections import defaultdict

import pytest

from tests.compat import tools
from tests.compat.conftest import Peer
from tests.support.franz_go import franz
from tests.support.nightly import nightly_but
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import PATIENCE_SEC

PARTITIONS = 3


def copy(peer: Peer, count: int, workers: int, balancer: str) -> None:
    """Copy so many records over two topics by groups whose workers abort and leave; each must arrive once."""
    reason = tools.franz_missing()
    if reason:
        pytest.skip(reason)
    chain = [unique_name("chain") for _ in range(3)]
    for name in chain:
        create_topic(peer, name, PARTITIONS)
    rows = franz(
        peer, "etl", f"-topics={','.join(chain)}", f"-count={count}", f"-workers={workers}",
        f"-balancer={balancer}", f"-limit={PATIENCE_SEC}s", timeout_s=PATIENCE_SEC + 30,
    )  # fmt: skip
    assert sorted(int(row["value"]) for row in rows) == list(range(count))
    offsets = defaultdict(list)
    for row in rows:
        offsets[row["partition"]].append(row["offset"])
    for found in offsets.values():
        assert found == sorted(found)


@pytest.mark.parametrize(
    "balancer", nightly_but(("range", "roundrobin", "sticky", "cooperative-sticky"), "cooperative-sticky")
)
def test_each_record_is_copied_once(peer: Peer, balancer: str) -> None:
    copy(peer, 1_000, 2, balancer)


@pytest.mark.nightly
def test_many_records_are_copied_once_by_many_workers(peer: Peer) -> None:
    copy(peer, 20_000, 4, "cooperative-sticky")

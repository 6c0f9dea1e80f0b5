"""A cluster with the old protocol of transactions alone (`transaction.version` 1): the same clients, no KIP-890."""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from kafscale.formats.features import TRANSACTION_VERSION
from kafscale.metadata import keys
from kafscale.metadata.sqlite.store import SqliteStore
from kafscale.metadata.store import Delete
from tests.compat.conftest import Peer
from tests.compat.transactions.conftest import transactional_peer
from tests.compat.transactions.test_franz_go import copy
from tests.support.broker import KafscaleBroker
from tests.support.java import FEATURES, ToolServer
from tests.support.topics import create_topic, unique_name
from tests.support.transactions.client import Read, TransactionalClient, TransactionError
from tests.support.transactions.observing import last_stable_offset, transaction_state
from tests.support.waiting import wait_until

pytestmark = pytest.mark.nightly
CLIENTS = pytest.mark.parametrize("client", ["java", "librdkafka", "franz-go"], indirect=True)


@pytest.fixture(scope="module")
def old_peer(java: ToolServer, peer_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A broker whose cluster has the old protocol finalized."""
    peer = transactional_peer(peer_kind, tmp_path_factory)
    command = "downgrade"
    try:
        peer.start()
        if isinstance(peer, KafscaleBroker):
            # A level that is finalized is never taken back: as a cluster that an older release began.
            peer.stop()
            asyncio.run(_forget_level(peer))
            peer.start()
            command = "upgrade"
        arguments = (command, "--feature", f"{TRANSACTION_VERSION}=1")
        java.tool(FEATURES, "--bootstrap-server", peer.bootstrap, *arguments).ok()
        yield peer
        peer.stop()
    finally:
        peer.close()


async def _forget_level(broker: KafscaleBroker) -> None:
    store = await SqliteStore.open(broker.data_folder / "metadata.db")
    try:
        await store.transact([], [Delete(keys.feature(TRANSACTION_VERSION))])
    finally:
        await store.close()


@CLIENTS
def test_epoch_stays_over_transactions(client: TransactionalClient, old_peer: Peer) -> None:
    topic, transactional_id = unique_name("topic"), unique_name("id")
    create_topic(old_peer, topic, 1)
    with contextlib.closing(client.producer(old_peer.bootstrap, transactional_id)) as producer:
        for values, is_committed in ((b"ab", True), (b"cd", False), (b"ef", True)):
            producer.begin()
            producer.send(topic, 0, [b"%c" % value for value in values])
            if is_committed:
                producer.commit()
            else:
                producer.abort()
            assert transaction_state(old_peer, transactional_id).producer_epoch == 0
        read = client.read(old_peer.bootstrap, topic, b"f")
    assert read == [Read(0, b"a"), Read(1, b"b"), Read(6, b"e"), Read(7, b"f")]


@CLIENTS
def test_second_producer_fences_the_first(client: TransactionalClient, old_peer: Peer) -> None:
    topic, transactional_id = unique_name("topic"), unique_name("id")
    create_topic(old_peer, topic, 1)
    with contextlib.closing(client.producer(old_peer.bootstrap, transactional_id)) as first:
        first.begin()
        first.send(topic, 0, [b"of the first"])
        with contextlib.closing(client.producer(old_peer.bootstrap, transactional_id)) as second:
            wait_until(lambda: last_stable_offset(old_peer, topic) == 2, "the first one's is aborted")
            second.begin()
            second.send(topic, 0, [b"of the second"])
            with pytest.raises(TransactionError) as raised:
                first.commit()
            assert raised.value.is_fenced, raised.value
            second.commit()
    assert client.read(old_peer.bootstrap, topic, b"of the second") == [Read(2, b"of the second")]


def test_each_record_is_copied_once_by_groups(old_peer: Peer) -> None:
    copy(old_peer, 1_000, 2, "cooperative-sticky")

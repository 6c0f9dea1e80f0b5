"""`kafscale serve` with TLS: librdkafka and openssl as clients, new certificates under traffic, a refused start."""

import re
import ssl
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from tests.support.broker import KafscaleBroker
from tests.support.nightly import by_day
from tests.support.ports import free_port
from tests.support.tls_files import TlsFolder
from tests.support.waiting import PATIENCE_SEC, wait_until


class TlsBroker(KafscaleBroker):
    """A broker whose clients need certificates; its plaintext listener is for the test alone."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.tls_port = free_port()
        self.files = TlsFolder(folder / "tls")

    def environment(self) -> dict[str, str]:
        ours = super().environment()
        del ours["KAFSCALE_BROKER_ADDR"]
        ours["KAFSCALE_LISTENERS"] = f"SSL://127.0.0.1:{self.tls_port},PLAINTEXT://{self.host}:{self.port}"
        return ours | {f"KAFSCALE_{name.upper()}": str(to) for name, to in self.files.mutual_settings.items()}

    def client(self, folder: Path) -> dict[str, str]:
        """librdkafka's properties."""
        shown = self.files.authority.issue_cert(common_name="orders")
        shown.private_key_pem.write_to_path(str(folder / "client.key"))
        (folder / "client.crt").write_bytes(b"".join(part.bytes() for part in shown.cert_chain_pems))
        return {
            "bootstrap.servers": f"127.0.0.1:{self.tls_port}",
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.files.folder / "ca.crt"),
            "ssl.certificate.location": str(folder / "client.crt"),
            "ssl.key.location": str(folder / "client.key"),
        }

    def shown_serial(self) -> int:
        """The serial number of the certificate that a new connection gets."""
        pem = ssl.get_server_certificate(("127.0.0.1", self.tls_port))
        return x509.load_pem_x509_certificate(pem.encode()).serial_number


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TlsBroker]:
    started = TlsBroker(tmp_path)
    try:
        started.start()
        yield started
    finally:
        started.close()


def test_certificates_change_without_a_failed_request(broker: TlsBroker, tmp_path: Path) -> None:
    failed: list[KafkaError] = []
    delivered: list[int] = []
    ended = threading.Event()

    def report(problem: KafkaError | None, message: Message) -> None:
        if problem is None:
            delivered.append(len(message.value() or b""))
        else:
            failed.append(problem)

    def produce() -> None:
        while not ended.is_set():
            # New connections all the time: each producer has its own.
            producer = Producer({**broker.client(tmp_path), "error_cb": failed.append, "linger.ms": 0})
            for _ in range(5):
                producer.produce("topic", b"x" * 20_000, on_delivery=report)
                producer.poll(0.01)
            assert producer.flush(PATIENCE_SEC) == 0

    traffic = threading.Thread(target=produce)
    traffic.start()
    try:
        for _ in range(by_day(1, by_night=2)):
            before, count = broker.shown_serial(), len(delivered)
            broker.files.renew()
            wait_until(lambda: broker.shown_serial() != before, "the new certificate is shown")  # noqa: B023
            wait_until(lambda: len(delivered) > count + 10, "records are delivered")  # noqa: B023
    finally:
        ended.set()
        traffic.join()
    assert failed == []
    consumer = Consumer({**broker.client(tmp_path), "group.id": "group", "auto.offset.reset": "earliest"})
    consumer.subscribe(["topic"])
    read: list[int] = []

    def poll() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            read.append(len(message.value() or b""))
        return len(read) == len(delivered)

    wait_until(poll, "everything is read")
    consumer.close()
    assert read == delivered


def test_openssl_finds_the_protocols_served(broker: TlsBroker, tmp_path: Path) -> None:
    properties = broker.client(tmp_path)
    shown = ["-cert", properties["ssl.certificate.location"], "-key", properties["ssl.key.location"]]
    for option, expected in (("-tls1_3", "TLSv1.3"), ("-tls1_2", "TLSv1.2"), ("-tls1_1", None)):
        done = subprocess.run(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{broker.tls_port}", option, "-brief", *shown],
            input=b"",
            capture_output=True,
            timeout=PATIENCE_SEC,
            check=False,
        )
        found = re.search(r"Protocol version: (\S+)", done.stderr.decode())
        assert (found and found[1]) == expected


def test_a_stop_ends_tls_connections_in_order(broker: TlsBroker, tmp_path: Path) -> None:
    producer = Producer(broker.client(tmp_path))
    producer.produce("topic", b"x")
    assert producer.flush(PATIENCE_SEC) == 0
    broker.stop()
    assert broker.exit_code == 0


def test_plaintext_for_others_ends_the_start(tmp_path: Path) -> None:
    open_to_all = KafscaleBroker(tmp_path, broker_addr=f"0.0.0.0:{free_port()}")
    try:
        open_to_all.launch_only()
        wait_until(lambda: open_to_all.exit_code is not None, "it ends")
        assert open_to_all.exit_code
        assert "KAFSCALE_ALLOW_PLAINTEXT=true" in open_to_all.log_tail()
    finally:
        open_to_all.close()
    allowed = KafscaleBroker(tmp_path, broker_addr=f"0.0.0.0:{free_port()}", allow_plaintext="true")
    try:
        allowed.start()
        assert "everyone who reaches it is User:ANONYMOUS" in allowed.log_tail()
    finally:
        allowed.close()


def test_the_data_folder_is_the_brokers_alone(broker: TlsBroker) -> None:
    assert stat.S_IMODE(broker.data_folder.stat().st_mode) == 0o700


def test_no_log_line_has_the_keys_password(tmp_path: Path) -> None:
    broker = TlsBroker(tmp_path)
    key_file = broker.files.folder / "tls.key"
    key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"canary-4711"),
        )
    )
    broker.settings = {"ssl_key_password": "canary-4711", "log_level": "debug"}
    try:
        broker.start()
        assert broker.shown_serial()
        assert "canary-4711" not in broker.http_get("/metrics")[1]
        broker.stop()
        assert "canary-4711" not in broker.log_text()
    finally:
        broker.close()

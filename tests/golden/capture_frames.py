"""Record the requests of real clients into `tests/golden/frames`: `python -m tests.golden.capture_frames`.

The clients talk to a real Apache Kafka through a proxy that keeps the first request of each API, version and
length, and lowers the advertised versions to those that Kafscale serves.
"""

import asyncio
import contextlib
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KafkaPythonNewTopic
from kafka.protocol.metadata import ApiVersionsResponse

from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.header import parse_request_header
from kafscale.protocol.messages import encode_response
from tests.protocol.test_messages import SERVED
from tests.support.apache_kafka import ApacheKafka
from tests.support.consumer_groups_tool import CONSUMER_GROUPS
from tests.support.java import CONFIGS, CONSOLE_CONSUMER, CONSOLE_PRODUCER, GET_OFFSETS, TOPICS, run_tool
from tests.support.ports import free_port

librdkafka_admin: Any = confluent_kafka.admin
FRAMES = Path(__file__).with_name("frames")
KAFKA_VERSION = "4.1.1"
HIGHEST_SERVED = {key: highest for key, (_, highest) in SERVED.items()} | {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 13,
}
RECORDS = [(f"key-{number}", f"value-{number}") for number in range(3)]


class RecordingProxy:
    """Passes frames on both ways, and keeps the requests."""

    def __init__(self, broker_port: int, listen_port: int) -> None:
        self.bootstrap = f"127.0.0.1:{listen_port}"
        self.requests: dict[tuple[int, int, int], bytes] = {}
        self._broker_port = broker_port
        self._listener = socket.create_server(("127.0.0.1", listen_port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # which ends the accept that waits in the thread
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
                api_versions: dict[int, int] = {}
                for source, target, change in (
                    (client, broker, lambda frame, seen=api_versions: self._request(frame, seen)),
                    (broker, client, lambda frame, seen=api_versions: lower_versions(frame, seen)),
                ):
                    threading.Thread(target=pump, args=(source, target, change), daemon=True).start()

    def _request(self, frame: bytes, api_versions: dict[int, int]) -> bytes:
        header = parse_request_header(memoryview(frame))
        if header.api_key == ApiKey.API_VERSIONS:
            api_versions[header.correlation_id] = header.api_version
        self.requests.setdefault((header.api_key, header.api_version, len(frame)), frame)
        return frame


def pump(source: socket.socket, target: socket.socket, change: Callable[[bytes], bytes]) -> None:
    """Pass frames from one socket to the other until either ends."""
    with contextlib.suppress(OSError), source, target, source.makefile("rb") as frames:
        while length := frames.read(4):
            frame = change(frames.read(int.from_bytes(length, "big")))
            target.sendall(len(frame).to_bytes(4, "big") + frame)


def lower_versions(frame: bytes, api_versions: dict[int, int]) -> bytes:
    """In the answer to ApiVersions, leave what Kafscale serves."""
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    version = api_versions.pop(correlation_id, None)
    if version is None:
        return frame
    answer = ApiVersionsResponse.decode(frame[4:], version=version)
    answer._header = None  # without which kafka-python does not encode what it decoded
    answer.api_keys = [api for api in answer.api_keys if api.api_key in HIGHEST_SERVED]
    for api in answer.api_keys:
        api.max_version = min(api.max_version, HIGHEST_SERVED[ApiKey(api.api_key)])
    return encode_response(answer, answer.version, correlation_id)[4:]


def run_kafka_python(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([KafkaPythonNewTopic("kafka-python", num_partitions=2, replication_factor=1)])
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    for key, value in RECORDS:
        producer.send("kafka-python", value.encode(), key.encode()).get(30)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "kafka-python",
        bootstrap_servers=bootstrap,
        group_id="kafka-python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    for _ in RECORDS:
        next(consumer)
    consumer.commit()
    consumer.close()
    administer_with_kafka_python(admin, bootstrap)
    admin.delete_topics(["kafka-python"])
    admin.close()


def administer_with_kafka_python(admin: KafkaAdminClient, bootstrap: str) -> None:
    """The admin client's requests about groups; the group has one static member for a while."""
    member = kafka.KafkaConsumer(
        "kafka-python",
        bootstrap_servers=bootstrap,
        group_id="kafka-python",
        group_instance_id="static",
    )
    while not member.assignment():
        member.poll(timeout_ms=100)
    admin.describe_groups(["kafka-python"], include_authorized_operations=True)
    admin.remove_group_members("kafka-python", [kafka.admin.MemberToRemove(group_instance_id="static")])
    member.close(autocommit=False)
    partitions = [kafka.TopicPartition("kafka-python", index) for index in range(2)]
    admin.list_groups()
    admin.list_groups(states_filter=["Empty"], types_filter=["classic"])
    admin.alter_group_offsets(
        "kafka-python", {partitions[0]: kafka.OffsetAndMetadata(1, "set by the admin", -1)}
    )
    admin.list_group_offsets({"kafka-python": None})
    admin.list_group_offsets({"kafka-python": partitions})
    admin.delete_group_offsets("kafka-python", partitions)
    admin.delete_groups(["kafka-python"])


def run_confluent_kafka(bootstrap: str) -> None:
    config: dict[str, Any] = {"bootstrap.servers": bootstrap}
    admin = librdkafka_admin.AdminClient(config)
    for future in admin.create_topics([librdkafka_admin.NewTopic("librdkafka", 2, 1)]).values():
        future.result(30)
    assert "librdkafka" in admin.list_topics(timeout=30).topics
    resource = librdkafka_admin.ConfigResource(librdkafka_admin.ConfigResource.Type.TOPIC, "librdkafka")
    for future in admin.describe_configs([resource]).values():
        future.result(30)
    producer = confluent_kafka.Producer({**config, "enable.idempotence": True, "compression.type": "lz4"})
    for key, value in RECORDS:
        producer.produce("librdkafka", value, key)
    producer.flush(30)
    consumer = confluent_kafka.Consumer(
        {**config, "group.id": "librdkafka", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe(["librdkafka"])
    received = 0
    while received < len(RECORDS):
        message = consumer.poll(30)
        assert message is not None
        received += message.error() is None
    consumer.commit(asynchronous=False)
    administer_with_confluent_kafka(admin, consumer)
    for future in admin.delete_topics(["librdkafka"]).values():
        future.result(30)


def administer_with_confluent_kafka(admin: Any, consumer: confluent_kafka.Consumer) -> None:
    """The admin client's requests about groups, before and after the only member leaves."""
    described = admin.describe_consumer_groups(["librdkafka"], include_authorized_operations=True)
    assert len(described["librdkafka"].result(30).members) == 1
    consumer.close()
    group, partition = confluent_kafka.ConsumerGroupTopicPartitions, confluent_kafka.TopicPartition
    changed = group("librdkafka", [partition("librdkafka", 0, 1)])
    asked = [
        *admin.list_consumer_group_offsets([group("librdkafka")]).values(),
        *admin.list_consumer_group_offsets([group("librdkafka", [partition("librdkafka", 1)])]).values(),
        *admin.alter_consumer_group_offsets([changed]).values(),
        admin.list_consumer_groups(states={confluent_kafka.ConsumerGroupState.EMPTY}),
        *admin.delete_consumer_groups(["librdkafka"]).values(),
    ]
    for future in asked:
        future.result(30)


def run_aiokafka(bootstrap: str) -> None:
    async def main() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True
        ) as producer:
            for key, value in RECORDS:
                await producer.send_and_wait("aiokafka", value.encode(), key.encode())
        async with aiokafka.AIOKafkaConsumer(
            "aiokafka", bootstrap_servers=bootstrap, group_id="aiokafka", auto_offset_reset="earliest"
        ) as consumer:
            for _ in RECORDS:
                await asyncio.wait_for(consumer.getone(), 30)
            await consumer.commit()

    asyncio.run(main())


def run_java(bootstrap: str) -> None:
    server = ("--bootstrap-server", bootstrap)
    run_tool(TOPICS, *server, "--create", "--topic", "java", "--partitions", "2").ok()
    lines = "".join(f"{value}\n" for _, value in RECORDS)
    run_tool(CONSOLE_PRODUCER, *server, "--topic", "java", stdin=lines).ok()
    count = str(len(RECORDS))
    run_tool(
        CONSOLE_CONSUMER, *server, "--topic", "java", "--group", "java", "--from-beginning",
        "--max-messages", count, "--timeout-ms", "20000",
    ).ok()  # fmt: skip
    groups = (CONSUMER_GROUPS, *server)
    run_tool(*groups, "--list", "--state", "Empty", "--type", "classic").ok()
    run_tool(*groups, "--describe", "--group", "java", "--members", "--verbose").ok()
    run_tool(*groups, "--describe", "--group", "java").ok()
    run_tool(
        *groups, "--reset-offsets", "--group", "java", "--topic", "java", "--to-earliest", "--execute"
    ).ok()
    run_tool(*groups, "--delete-offsets", "--group", "java", "--topic", "java").ok()
    run_tool(*groups, "--delete", "--group", "java").ok()
    run_tool(
        CONFIGS, *server, "--alter", "--entity-type", "topics", "--entity-name", "java",
        "--add-config", "retention.ms=1000",
    ).ok()  # fmt: skip
    run_tool(GET_OFFSETS, *server, "--topic", "java").ok()
    run_tool(TOPICS, *server, "--describe", "--topic", "java").ok()
    run_tool(TOPICS, *server, "--delete", "--topic", "java").ok()


def run_kcat(bootstrap: str) -> None:
    lines = "".join(f"{value}\n" for _, value in RECORDS).encode()
    subprocess.run(["kcat", "-b", bootstrap, "-P", "-t", "kcat"], input=lines, check=True, timeout=30)
    consume = ["kcat", "-b", bootstrap, "-C", "-t", "kcat", "-o", "beginning", "-c", str(len(RECORDS)), "-q"]
    join = ["kcat", "-b", bootstrap, "-X", "auto.offset.reset=earliest", "-c", str(len(RECORDS)), "-q"]
    for command in (consume, [*join, "-G", "kcat", "kcat"]):
        subprocess.run(command, check=True, timeout=30, stdout=subprocess.DEVNULL)


def kcat_version() -> str:
    shown = subprocess.run(["kcat", "-V"], check=True, capture_output=True, text=True).stdout
    return shown.split("Version ")[1].split()[0]


def clients() -> Iterator[tuple[str, Callable[[str], None]]]:
    """Client and version, and what makes it send a little of everything."""
    yield f"kafka-python-{package_version('kafka-python')}", run_kafka_python
    yield f"librdkafka-{confluent_kafka.libversion()[0]}", run_confluent_kafka
    yield f"aiokafka-{aiokafka.__version__}", run_aiokafka
    yield f"kafka-clients-{KAFKA_VERSION}", run_java
    yield f"kcat-{kcat_version()}", run_kcat


def main() -> None:
    FRAMES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        broker = ApacheKafka(Path(folder), advertised_listeners=f"PLAINTEXT://127.0.0.1:{port}")
        broker.start()
        try:
            for name, run in clients():
                proxy = RecordingProxy(broker.port, port)
                try:
                    run(proxy.bootstrap)
                finally:
                    proxy.close()
                lines = (
                    f"{ApiKey(key).api_name} {version} {frame.hex()}\n"
                    for (key, version, _), frame in sorted(proxy.requests.items())
                )
                (FRAMES / f"{name}.txt").write_text("".join(lines))
                print(name, len(proxy.requests))
        finally:
            broker.close()


if __name__ == "__main__":
    main()

"""Clients that run as programs: franz-go, KafkaJS, kcat."""

import json
import os
import re
import subprocess
from typing import Any

from tests.compat.security.clients import Refused
from tests.compat.tools import FRANZ, KAFKA_JS, KAFKA_JS_SOURCE
from tests.support.client_security import librdkafka_config
from tests.support.security_plan import MECHANISMS, PLAIN, Access

PROGRAM_SEC = 60.0
_KCAT_REASONS = re.compile(
    "SASL authentication error|mechanism handshake failed|certificate verify failed|alert"
)


class FranzGo:
    """The Go client (tests/compat/go)."""

    name = "franz-go"
    mechanisms: tuple[str, ...] = MECHANISMS

    def create(self, access: Access, topic: str) -> None:
        """Create a topic of one partition."""
        rows = self._run(access, "admin", "-do", "create", topic)
        assert [row["error"] for row in rows] == [""], rows

    def produce(self, access: Access, topic: str, values: list[str]) -> str | None:
        """Send as many values; they are `<first>-0` and so on. Gives the first error."""
        prefix = values[0].removesuffix("-0")
        assert values == [f"{prefix}-{number}" for number in range(len(values))]
        done = self._process(
            access, "produce", "-topic", topic, "-count", str(len(values)), "-prefix", prefix
        )
        return None if done.returncode == 0 else _franz_error(done)

    def consume(self, access: Access, topic: str, group: str, count: int) -> list[str]:
        """The first values of the topic, as a member of the group."""
        done = self._process(
            access, "consume", "-topics", topic, "-group", group, "-count", str(count), "-autocommit"
        )
        rows = _rows(done)
        refused = [row["message"] for row in rows if row["event"] == "error"]
        if refused:
            raise Refused(refused[0])
        return [row["value"] for row in rows if row["event"] == "record"]

    def refusal(self, access: Access) -> str | None:
        """The error of a ping; which alert of TLS it is, is the TLS library's choice."""
        (row,) = self._run(access, "ping")
        return "TLS alert" if row["error"].startswith("remote error: tls") else row["error"] or None

    def _run(self, access: Access, command: str, *arguments: str) -> list[dict[str, Any]]:
        done = self._process(access, command, *arguments)
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
        return _rows(done)

    def _process(self, access: Access, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"FRANZ_SECURITY": json.dumps(_settings(access))}
        return _process([str(FRANZ), command, "-brokers", access.bootstrap, *arguments], environment)


class KafkaJs:
    """The JavaScript client (tests/compat/node)."""

    name = "kafkajs"
    mechanisms: tuple[str, ...] = MECHANISMS

    def create(self, access: Access, topic: str) -> None:
        """Create a topic of one partition."""
        self._run(access, topic, "none", "create")

    def produce(self, access: Access, topic: str, values: list[str]) -> str | None:
        """Send the values, and give the first error."""
        done = self._process(access, topic, "none", "produce", *values)
        return None if done.returncode == 0 else _reason(done)

    def consume(self, access: Access, topic: str, group: str, count: int) -> list[str]:
        """The first values of the topic, as a member of the group."""
        done = self._process(access, topic, group, "consume", str(count))
        if done.returncode != 0:
            raise Refused(_reason(done))
        values: list[str] = json.loads(done.stdout)
        return values

    def refusal(self, access: Access) -> str | None:
        """The error with which it cannot connect."""
        error: str | None = json.loads(self._run(access, "refused", "none", "check"))["error"]
        return error

    def _run(self, access: Access, topic: str, group: str, *arguments: str) -> str:
        done = self._process(access, topic, group, *arguments)
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _process(
        self, access: Access, topic: str, group: str, *arguments: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            "KAFKAJS_SECURITY": json.dumps(_settings(access)),
            "KAFKAJS_NO_PARTITIONER_WARNING": "1",
            "NODE_PATH": str(KAFKA_JS / "node_modules"),
        }
        script = str(KAFKA_JS_SOURCE / "client.js")
        return _process(["node", script, access.bootstrap, topic, group, *arguments], environment)


class Kcat:
    """kcat, with the librdkafka that Debian has.

    It has no way to hand over a token. Up to 2.6.0 its SCRAM repeats the client's nonce, which RFC 5802 forbids and
    Kafka refuses since 3.7.2 (CVE-2024-56128, librdkafka issue 4895).
    """

    name = "kcat"
    mechanisms: tuple[str, ...] = (PLAIN,)

    def librdkafka_version(self) -> tuple[int, ...]:
        """The version of its librdkafka."""
        found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", _process(["kcat", "-V"], {}).stdout)
        assert found is not None
        return tuple(map(int, found.groups()))

    def create(self, access: Access, topic: str) -> None:
        """It cannot."""
        raise NotImplementedError("kcat creates no topics")

    def produce(self, access: Access, topic: str, values: list[str]) -> str | None:
        """Send the values, and give the first error."""
        done = self._process(access, "-P", "-t", topic, "-p", "0", stdin="\n".join(values))
        return None if done.returncode == 0 else done.stderr

    def consume(self, access: Access, topic: str, group: str, count: int) -> list[str]:
        """The first values of the topic, as a member of the group."""
        done = self._process(
            access, "-X", "auto.offset.reset=earliest", "-q", "-c", str(count), "-G", group, topic
        )
        if done.returncode != 0:
            raise Refused(done.stderr)
        return done.stdout.splitlines()

    def refusal(self, access: Access) -> str | None:
        """The error of a list of topics."""
        done = self._process(access, "-L", "-m", "2")
        found = _KCAT_REASONS.search(done.stderr)
        return None if done.returncode == 0 else found[0] if found else done.stderr

    def _process(self, access: Access, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        options = [
            part for name, value in librdkafka_config(access).items() for part in ("-X", f"{name}={value}")
        ]
        return _process(["kcat", *options, *arguments], {}, stdin)


def _settings(access: Access) -> dict[str, Any]:
    """The names that the programs in this project share."""
    return {
        "tls": access.is_tls, "ca": access.ca or "", "cert": access.cert or "", "key": access.key or "",
        "mechanism": access.mechanism or "", "user": access.user, "password": access.password,
        "token": access.token or "",
    }  # fmt: skip


def _process(
    command: list[str], environment: dict[str, str], stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=os.environ | environment, input=stdin, capture_output=True, text=True,
        timeout=PROGRAM_SEC, check=False,
    )  # fmt: skip


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """The last of what a program of this project says on its standard error: after its first colon."""
    return done.stderr.splitlines()[-1].split(":")[1].strip()


def _franz_error(done: subprocess.CompletedProcess[str]) -> str:
    """The whole error of the Go program. The client logs lines beside it, also after it, which name the topic."""
    errors = [line for line in done.stderr.splitlines() if line.startswith("franz: ")]
    assert errors, done.stderr[-4000:]
    return errors[-1].removeprefix("franz: ")


def _rows(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

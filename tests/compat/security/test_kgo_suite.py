"""The test suite of kgo, franz-go's client, over SASL_SSL and in plaintext."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat import tools
from tests.compat.security.conftest import USERS
from tests.support.certificates import Certificates
from tests.support.group_peer import peer_kind
from tests.support.installing import run_command
from tests.support.secure_peer import SecurePeer, secure_peer
from tests.support.security_plan import (
    PLAINTEXT,
    SASL_PLAINTEXT,
    SASL_SSL,
    SCRAM_256,
    SCRAM_512,
    SecurityPlan,
)

SUITE_SEC = 3_000  # two to five minutes on two busy cores
RECORDS = 20_000  # the suite's own number is half a million
OWN_DIALER = "TestIssue769"  # kgo refuses a dialer beside TLS
# kgo asks for ApiVersions, and so says what it is, once for each broker and not for each connection: without this it
# gets batches decompressed (docs/compatibility.md), and TestPooling misses the compressed ones.
EVERY_CODEC = {"codec_clients": "*"}

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(SUITE_SEC + 120)]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suite, built from the module that the Go client of these tests is built from."""
    reason = tools.franz_missing()
    if reason:
        pytest.skip(reason)
    built = tmp_path_factory.mktemp("kgo") / "kgo.test"
    package = "github.com/twmb/franz-go/pkg/kgo"
    run_command("go", "test", "-C", str(tools.FRANZ_SOURCE), "-c", "-o", str(built), package)
    return built


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[SecurePeer]:
    """A broker with an authorizer that lets `admin`, and everyone who comes in plaintext, do everything."""
    plan = SecurityPlan(
        certificates=certificates, users=USERS, listeners=(PLAINTEXT, SASL_PLAINTEXT, SASL_SSL),
        mechanisms=(SCRAM_256, SCRAM_512), super_users=("admin", "ANONYMOUS"),
    )  # fmt: skip
    own = {} if peer_kind() == "kafka" else EVERY_CODEC
    folder = tmp_path_factory.mktemp("kgo-peer")
    with secure_peer(folder, plan, group_initial_rebalance_delay_ms=0, **own) as peer:
        yield peer


@pytest.mark.parametrize("number", ["256", "512"])
def test_suite_passes_over_sasl_ssl(peer: SecurePeer, suite: Path, tmp_path: Path, number: str) -> None:
    passed = run(suite, tmp_path, environment(peer, SASL_SSL, number), skipped=[OWN_DIALER])
    assert passed > 30


def test_suite_passes_in_plaintext(peer: SecurePeer, suite: Path, tmp_path: Path) -> None:
    passed = run(suite, tmp_path, environment(peer, PLAINTEXT))
    assert passed > 30


def test_own_dialer_passes_with_scram(peer: SecurePeer, suite: Path, tmp_path: Path) -> None:
    passed = run(suite, tmp_path, environment(peer, SASL_PLAINTEXT, "512"), only=OWN_DIALER)
    assert passed == 1


def environment(peer: SecurePeer, listener: str, scram: str | None = None) -> dict[str, str]:
    """How the suite comes in by a listener, as `admin` with SCRAM-SHA-`scram`."""
    made = {
        "KGO_SEEDS": f"127.0.0.1:{peer.ports[listener]}",
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_TEST_MAX_TOPIC_PARTS": "7",
    }
    if listener == SASL_SSL:
        made["KGO_TEST_TLS"] = f"ca:{peer.plan.certificates.ca}"
    if scram:
        made["KGO_TEST_SCRAM"] = f"admin:{peer.plan.users['admin']}:{scram}"
    return made


def run(
    suite: Path, folder: Path, settings: dict[str, str], *, skipped: list[str] | None = None, only: str = ""
) -> int:
    """Run the suite to its end; returns how many of its tests passed. All that are not skipped must."""
    left_out = skipped or []
    done = subprocess.run(
        [
            str(suite), "-test.v", f"-test.timeout={SUITE_SEC}s", f"-test.run={only}",
            *([f"-test.skip={'|'.join(left_out)}"] if left_out else []),
        ],
        env=os.environ | settings,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SUITE_SEC + 60,
        check=False,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.lstrip().startswith("--- FAIL")]
    assert done.returncode == 0, f"{failed}\n{done.stdout[-8000:]}{done.stderr[-4000:]}"
    assert lines[-1] == "PASS"
    passed = sum(line.startswith("--- PASS") for line in lines)
    print(f"{passed} tests passed, without {left_out}")
    return passed

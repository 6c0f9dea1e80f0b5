"""`kafscale lifecycle`: what it prints, what it makes of a bucket's rules, what it refuses, its exit codes."""

import asyncio
import json
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafscale.cluster.cluster_record import ensure_cluster_id
from kafscale.cluster.marker import claim_marker
from kafscale.commands import lifecycle as lifecycle_command
from kafscale.commands.cli import main
from kafscale.commands.lifecycle import EXIT_DIFFERENT, EXIT_REFUSED
from kafscale.errors import StoreError, StoreRefusedError, StoreUnavailableError
from kafscale.formats.topic_record import encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.sqlite.store import SqliteStore
from kafscale.metadata.store import Put
from kafscale.objects.bucket.config import open_bucket
from kafscale.settings.broker import Settings, load_settings
from kafscale.tools.lifecycle.bucket import BucketConfiguration, BucketLifecycle
from kafscale.tools.lifecycle.rule_text import S3Rule
from tests.support.moto_server import BUCKET, MotoServer, moto_server
from tests.support.ports import free_port
from tests.support.s3_server import s3_server

DAY_MS = 86_400_000
FOREIGN = {"ID": "logs", "Filter": {"Prefix": "logs/"}, "Status": "Enabled", "Expiration": {"Days": 3}}


pytestmark = pytest.mark.usefixtures("logging_as_before")


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    with moto_server(tmp_path_factory.mktemp("moto")) as server:
        yield server


class Deployment:
    """A metadata store in a folder beside the bucket of a server."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.environment = {"KAFSCALE_DATA_DIR": str(folder), "KAFSCALE_S3_NAMESPACE": "n"} | settings

    @property
    def settings(self) -> Settings:
        return load_settings(self.environment)

    def set_topics(self, topics: dict[str, dict[str, str]], state: TopicState = TopicState.ACTIVE) -> None:
        """These topics with these configs, beside those that are there."""
        asyncio.run(self._set_topics(topics, state))

    async def _set_topics(self, topics: dict[str, dict[str, str]], state: TopicState) -> None:
        self.settings.data_dir.mkdir(exist_ok=True)
        store = await SqliteStore.open(self.settings.data_dir / "metadata.db", fsync=False)
        cluster_id = await ensure_cluster_id(store)
        for name, configs in topics.items():
            record = TopicRecord(
                name=name, topic_id=uuid.uuid4(), partition_count=1, configs=configs, state=state
            )
            await store.transact([], [Put(keys.topic(name), encode_topic_record(record))])
        await store.close()
        objects = open_bucket(self.settings)
        await claim_marker(objects, "n", cluster_id)
        await objects.close()

    def run(self, *arguments: str, **environment: str) -> Result:
        return CliRunner().invoke(main, ["lifecycle", *arguments], env=self.environment | environment)

    def rules(self) -> dict[str, S3Rule]:
        """The bucket's, by id."""
        with closing(BucketLifecycle(self.settings)) as lifecycle:
            return {rule["ID"]: rule for rule in lifecycle.read().rules}

    def set_rules(self, *rules: S3Rule) -> None:
        with closing(BucketLifecycle(self.settings)) as lifecycle:
            lifecycle.replace(rules, BucketConfiguration(rules=()))


@pytest.fixture
def deployment(tmp_path: Path, moto: MotoServer) -> Deployment:
    """With three topics and a bucket without rules."""
    moto.make_bucket()
    made = Deployment(tmp_path, moto.settings)
    made.set_topics(
        {
            "orders": {"retention.ms": str(DAY_MS)},
            "audit": {"retention.ms": "-1"},
            "state": {"cleanup.policy": "compact"},
            "usual": {},
        }
    )
    return made


def test_a_table_for_people_changes_nothing(deployment: Deployment) -> None:
    result = deployment.run()
    assert result.exit_code == 0, result.output
    rows = [re.split(r"\s{2,}", line) for line in result.stdout.splitlines()]
    assert ["audit", "without limit", "topic", "never: retention.ms is -1"] in rows
    assert ["orders", "1 d", "topic", "3 days after creation"] in rows
    assert ["state", "7 d", "default", "never: cleanup.policy is compact"] in rows
    assert ["usual", "7 d", "default", "9 days after creation"] in rows
    assert "All of n/: incomplete uploads removed after 7 days." in result.stdout
    assert deployment.rules() == {}


def test_json_is_what_the_aws_command_takes(deployment: Deployment) -> None:
    rules = json.loads(deployment.run("--format", "json", "--abort-multipart-days", "2").stdout)["Rules"]
    assert [rule["ID"] for rule in rules] == ["kafscale/n", "kafscale/n/orders", "kafscale/n/usual"]
    assert rules[0]["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 2}
    deployment.set_rules(*rules)  # a server takes it
    assert list(deployment.rules().values()) == rules


def test_apply_changes_only_our_rules_and_only_once(deployment: Deployment) -> None:
    stale = {**FOREIGN, "ID": "kafscale/n/gone", "Filter": {"Prefix": "n/gone/"}}
    deployment.set_rules(FOREIGN, stale)
    checked = deployment.run("--check")
    assert checked.exit_code == EXIT_DIFFERENT
    assert sorted(deployment.rules()) == ["kafscale/n/gone", "logs"]

    first = deployment.run("--apply")
    assert first.exit_code == 0, first.output
    assert first.stdout.startswith(checked.stdout)
    assert "+ kafscale/n/orders: n/orders/ " in first.stdout
    assert "- kafscale/n/gone: n/gone/ " in first.stdout
    assert "1 rules that are not Kafscale's stay" in first.stdout
    rules = deployment.rules()
    assert sorted(rules) == ["kafscale/n", "kafscale/n/orders", "kafscale/n/usual", "logs"]
    assert rules["logs"] == FOREIGN
    assert rules["kafscale/n/orders"]["Expiration"] == {"Days": 3}

    again = deployment.run("--apply")
    assert again.exit_code == 0
    assert "has these 3 rules already" in again.stdout and "Applied" not in again.stdout
    assert deployment.run("--check").exit_code == 0
    assert deployment.rules() == rules


def test_a_topic_kept_without_limit_loses_its_rule(deployment: Deployment) -> None:
    assert deployment.run("--apply").exit_code == 0
    deployment.set_topics({"orders": {"retention.ms": "-1"}, "usual": {"retention.ms": str(30 * DAY_MS)}})
    result = deployment.run("--apply")
    assert "- kafscale/n/orders" in result.stdout
    rules = deployment.rules()
    assert "kafscale/n/orders" not in rules
    assert rules["kafscale/n/usual"]["Expiration"] == {"Days": 32}


def test_a_topic_that_is_being_deleted_has_no_rule(deployment: Deployment) -> None:
    deployment.set_topics({"orders": {}}, TopicState.DELETING)
    assert "orders" not in deployment.run("--format", "json").stdout


def test_the_brokers_settings_count(deployment: Deployment) -> None:
    arguments = ("--format", "json", "--safety-days", "0")
    slow = {"KAFSCALE_GARBAGE_GRACE_SEC": str(5 * 86_400), "KAFSCALE_RETENTION_CHECK_INTERVAL_MS": "1"}
    days = [
        {rule["ID"]: rule.get("Expiration", {}).get("Days") for rule in json.loads(result.stdout)["Rules"]}
        for result in (deployment.run(*arguments), deployment.run(*arguments, **slow))
    ]
    assert [found["kafscale/n/orders"] for found in days] == [2, 7]


def test_default_retention_counts_for_topics_without_one(deployment: Deployment) -> None:
    result = deployment.run(KAFSCALE_RETENTION_MS="-1")
    rows = [re.split(r"\s{2,}", line) for line in result.stdout.splitlines()]
    assert ["usual", "without limit", "default", "never: retention.ms is -1"] in rows
    assert ["orders", "1 d", "topic", "3 days after creation"] in rows
    assert "kafscale/n/usual" not in deployment.run("--format", "json", KAFSCALE_RETENTION_MS="-1").stdout


def test_rule_for_everything_is_refused_if_it_deletes_too_much(deployment: Deployment) -> None:
    for arguments in ((), ("--apply",), ("--format", "json")):
        result = deployment.run("--default-days", "30", *arguments)
        assert result.exit_code == EXIT_REFUSED
        assert result.stdout == ""
        assert "refused: topic 'audit' is kept without limit: retention.ms is -1" in result.stderr
        assert "refused: topic 'state' is kept without limit: cleanup.policy is compact" in result.stderr
        assert "'orders'" not in result.stderr
    assert deployment.rules() == {}


def test_a_rule_for_everything_and_versions(deployment: Deployment) -> None:
    deployment.set_topics({"audit": {"retention.ms": "1"}, "state": {}})
    result = deployment.run("--apply", "--default-days", "9", "--noncurrent-days", "2")
    assert result.exit_code == 0, result.output
    rules = deployment.rules()
    assert sorted(rules) == ["kafscale/_kafscale/n", "kafscale/n", "kafscale/n/audit", "kafscale/n/orders"]
    assert rules["kafscale/n"]["Expiration"] == {"Days": 9}
    assert rules["kafscale/n"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 2}


def test_foreign_rules_that_delete_objects_are_warned_about(deployment: Deployment) -> None:
    deployment.set_rules({**FOREIGN, "Filter": {"Prefix": ""}})
    result = deployment.run("--check")
    assert "warning: the bucket's rule 'logs' is not Kafscale's and deletes objects under ''" in result.stderr


def test_too_many_rules_with_those_of_others_are_refused(deployment: Deployment) -> None:
    others = [{**FOREIGN, "ID": f"r{n}", "Filter": {"Prefix": f"logs/{n}/"}} for n in range(998)]
    deployment.set_rules(*others)
    result = deployment.run("--apply")
    assert result.exit_code == EXIT_REFUSED
    assert "refused: 1001 rules, 998 of them not Kafscale's, are more than the 1000" in result.stderr
    assert len(deployment.rules()) == 998


def test_rules_of_another_clusters_topics_are_not_applied(deployment: Deployment, tmp_path: Path) -> None:
    other = Deployment(
        tmp_path / "other", deployment.environment | {"KAFSCALE_DATA_DIR": str(tmp_path / "other")}
    )
    other.set_topics({"orders": {"retention.ms": "1"}})
    for argument in ("--apply", "--check"):
        result = other.run(argument)
        assert result.exit_code == 1
        assert "belongs to cluster" in result.stderr and "correct KAFSCALE_S3_NAMESPACE" in result.stderr
    unused = deployment.run("--apply", KAFSCALE_S3_NAMESPACE="unused")
    assert (unused.exit_code, "is no cluster's" in unused.stderr) == (1, True)
    assert deployment.rules() == {}


def test_a_write_that_was_undone_is_reported(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = BucketLifecycle.replace

    def replace_and_lose(self: BucketLifecycle, rules: Any, before: BucketConfiguration) -> None:
        replace(self, rules, before)
        replace(self, [FOREIGN], before)

    monkeypatch.setattr(BucketLifecycle, "replace", replace_and_lose)
    monkeypatch.setattr(lifecycle_command, "VERIFY_PAUSE_SEC", 0.0)
    result = deployment.run("--apply")
    assert result.exit_code == 1
    assert "does not have the rules that were written" in result.stderr
    assert "Applied" not in result.stdout


def test_a_store_without_lifecycle_rules_is_recognised(tmp_path: Path) -> None:
    with s3_server(tmp_path / "s3") as server:
        made = Deployment(tmp_path / "data", server.settings)
        made.set_topics({"t": {}})
        result = made.run("--apply")
    assert result.exit_code == 1
    assert result.stderr == (
        "kafscale: the object store has no lifecycle rules (it answers 501 NotImplemented); the brokers expire "
        "records without them\n"
    )


def test_what_a_server_says_is_one_line_and_cut() -> None:
    class Refusal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = (
                "<Error><Code>InvalidRequest</Code><Message>this\nand "
                + "that " * 1000
                + "</Message></Error>"
            )
            self.send_response(400)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said.encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = {
            "KAFSCALE_S3_BUCKET": BUCKET,
            "KAFSCALE_S3_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}",
            "KAFSCALE_S3_ACCESS_KEY": "key",
            "KAFSCALE_S3_SECRET_KEY": "secret",
        }
        with (
            closing(BucketLifecycle(load_settings(environment))) as lifecycle,
            pytest.raises(StoreRefusedError) as refused,
        ):
            lifecycle.read()
        server.shutdown()
    told = str(refused.value)
    assert "400 InvalidRequest: this and that" in told
    assert "\n" not in told and len(told) < 500


def test_terraform_says_the_same(deployment: Deployment) -> None:
    text = deployment.run("--format", "terraform", "--noncurrent-days", "5").stdout
    assert 'resource "aws_s3_bucket_lifecycle_configuration" "kafscale_n" {' in text
    assert f'bucket = "{BUCKET}"' in text
    rules = json.loads(deployment.run("--format", "json", "--noncurrent-days", "5").stdout)["Rules"]
    blocks = re.split(r"^  rule \{$", text, flags=re.MULTILINE)[1:]
    assert len(blocks) == len(rules)
    for block, rule in zip(blocks, rules, strict=True):
        assert f'id     = "{rule["ID"]}"' in block
        assert f'prefix = "{rule["Filter"]["Prefix"]}"' in block
        days = rule["Expiration"].get("Days")
        assert (f"      days = {days}\n" in block) is (days is not None)
        assert ("expired_object_delete_marker = true" in block) is (days is None)
        assert ("noncurrent_days = 5" in block) is ("NoncurrentVersionExpiration" in rule)
        assert ("days_after_initiation = 7" in block) is ("AbortIncompleteMultipartUpload" in rule)


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        ([], {}, "KAFSCALE_S3_BUCKET is not set, so the records are in a folder"),
        ([], {"KAFSCALE_S3_BUCKET": "gs://records"}, "KAFSCALE_S3_BUCKET=gs://records is a bucket of Google"),
        ([], {"KAFSCALE_S3_BUCKET": "az://records"}, "KAFSCALE_S3_BUCKET=az://records is a bucket of Azure"),
        (["--apply", "--check"], {}, "only one of --apply, --check and --format"),
        (["--apply", "--format", "json"], {}, "only one of --apply, --check and --format"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], says: str
) -> None:
    result = Deployment(tmp_path / "data", environment).run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"kafscale: {says}")
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "data").exists()


def test_a_metadata_store_of_no_cluster_gives_no_rules(tmp_path: Path) -> None:
    made = Deployment(tmp_path, {"KAFSCALE_S3_BUCKET": "records"})
    result = made.run("--format", "json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "belongs to no cluster yet" in result.stderr


def test_a_topic_whose_configs_are_not_legal_is_named(deployment: Deployment) -> None:
    deployment.set_topics({"odd": {"retention.ms": "soon"}})
    result = deployment.run()
    assert result.exit_code == EXIT_REFUSED
    assert "refused: topic 'odd': Invalid value 'soon' for configuration retention.ms" in result.stderr


def test_a_bucket_that_is_not_there(deployment: Deployment) -> None:
    check_failure(
        deployment,
        "KAFSCALE_S3_BUCKET",
        "elsewhere",
        StoreRefusedError,
        "NoSuchBucket: .*: create the bucket",
    )


def test_a_server_that_is_not_there(deployment: Deployment) -> None:
    """Its port is taken here: of one taken at the import another test has a server by now."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    check_failure(
        deployment,
        "KAFSCALE_S3_ENDPOINT",
        endpoint,
        StoreUnavailableError,
        "the object store does not answer",
    )


def check_failure(
    deployment: Deployment, setting: str, value: str, error: type[StoreError], says: str
) -> None:
    settings = load_settings(deployment.environment | {setting: value})
    with closing(BucketLifecycle(settings)) as lifecycle, pytest.raises(error, match=says):
        lifecycle.read()


def test_help_names_every_option() -> None:
    result = CliRunner().invoke(main, ["lifecycle", "--help"])
    for option in ("--format", "--apply", "--check"):
        assert option in result.output
    for option in ("default", "noncurrent", "abort-multipart", "safety"):
        assert f"--{option}-days N" in result.output

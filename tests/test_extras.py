"""Without the extras: what a folder's broker needs is there, and everything else says which extra it needs."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafscale.extras import MissingExtraError, extra_needed
from tests.package.declared import EXTRAS, base, modules_of_extras, of_extra
from tests.support.process import clean_environment
from tests.support.waiting import PATIENCE_SEC

# Runs each command in one process without the modules; prints the exit status and the errors of each.
RUN_ALL = """
import json, os, sys
modules, commands = json.loads(sys.stdin.read())
for module in modules:
    sys.modules[module] = None
from click.testing import CliRunner
from kafscale.commands.cli import main
import kafscale.broker.app
import spark_jobs.export, spark_jobs.reconcile
started = {"spark_jobs.export": spark_jobs.export.main, "spark_jobs.reconcile": spark_jobs.reconcile.main}
results = []
for settings, words in commands:
    command = started.get(words[0])
    result = CliRunner().invoke(command or main, words[1:] if command else words, env=settings)
    shown = "" if result.exception is None or isinstance(result.exception, SystemExit) else repr(result.exception)
    results.append([result.exit_code, result.stderr + shown])
json.dump(results, sys.stdout)
"""
BUCKET = {"KAFSCALE_S3_BUCKET": "records"}
SERVE = ("serve",)
# Settings, command -> the extra, and the words that name what needs it.
NEEDS: list[tuple[Mapping[str, str], tuple[str, ...], str, str]] = [
    (BUCKET, SERVE, "cluster", "KAFSCALE_S3_BUCKET=records"),
    (BUCKET | {"KAFSCALE_ETCD_ENDPOINTS": "127.0.0.1:1"}, SERVE, "cluster", "KAFSCALE_ETCD_ENDPOINTS=http"),
    (
        {
            "KAFSCALE_LISTENERS": "SSL://127.0.0.1:0",
            "KAFSCALE_SSL_CERTIFICATE_FILE": "/none",
            "KAFSCALE_SSL_KEY_FILE": "/none",
        },
        SERVE,
        "cluster",
        "the listener SSL of KAFSCALE_LISTENERS, which has TLS,",
    ),
    (
        {
            "KAFSCALE_LISTENERS": "SASL_PLAINTEXT://127.0.0.1:0",
            "KAFSCALE_SASL_ENABLED_MECHANISMS": "OAUTHBEARER",
            "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL": "file:///none",
        },
        SERVE,
        "cluster",
        "KAFSCALE_SASL_ENABLED_MECHANISMS with OAUTHBEARER",
    ),
    ({"KAFSCALE_BACKUP_BUCKET": "copies"}, ("backup", "list"), "cluster", "the bucket of backups copies"),
    (BUCKET, ("fsck",), "cluster", "KAFSCALE_S3_BUCKET=records"),
    (BUCKET, ("lifecycle",), "cluster", "KAFSCALE_S3_BUCKET=records"),
    (BUCKET, ("recover",), "cluster", "KAFSCALE_S3_BUCKET=records"),
    (BUCKET, ("exports",), "cluster", "KAFSCALE_S3_BUCKET=records"),
    ({}, ("dump", "s3://records/n/t/0/x.kfs"), "cluster", "the bucket s3://records"),
    ({}, ("operator", "--image", "kafscale:1"), "operator", "kafscale operator"),
    ({}, ("spark_jobs.export", "--topic", "t", "--table", "l.t"), "spark", "python -m spark_jobs.export"),
    (
        {},
        ("spark_jobs.reconcile", "--topic", "t", "--table", "l.t"),
        "spark",
        "python -m spark_jobs.reconcile",
    ),
]
WORK_WITHOUT: list[tuple[str, ...]] = [
    ("--help",),
    ("serve", "--help"),
    ("operator", "--help"),
    ("spark_jobs.export", "--help"),
    ("spark_jobs.reconcile", "--help"),
    ("users", "list"),
    ("backup", "list"),
]


@pytest.fixture(scope="module")
def without_extras(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """The exit status and the errors of each command above, by its settings and words."""
    usual = {
        "KAFSCALE_DATA_DIR": str(tmp_path_factory.mktemp("data")),
        "KAFSCALE_METRICS_ADDR": "127.0.0.1:0",
        "KAFSCALE_BROKER_ADDR": "127.0.0.1:0",
    }
    commands = [(settings, words) for settings, words, _, _ in NEEDS] + [
        ({}, words) for words in WORK_WITHOUT
    ]
    given = [({**usual, **settings}, words) for settings, words in commands]
    for settings, _ in given:
        if "KAFSCALE_LISTENERS" in settings:
            del settings["KAFSCALE_BROKER_ADDR"]
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL],
        input=json.dumps([modules_of_extras(), given]),
        env=clean_environment() | {"PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path_factory.mktemp("work"),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SEC,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    return {str(key): tuple(result) for key, result in zip(commands, results, strict=True)}


@pytest.mark.parametrize(("settings", "words", "extra", "named"), NEEDS, ids=lambda one: str(one)[:40])
def test_missing_extra_is_named(
    without_extras: dict[str, tuple[int, str]],
    settings: Mapping[str, str],
    words: tuple[str, ...],
    extra: str,
    named: str,
) -> None:
    status, errors = without_extras[str((settings, words))]
    last = errors.splitlines()[-1]
    assert status == (2 if words[0] == "dump" else 1), errors
    assert last.startswith((f"kafscale: {named}", f"error: {named}"))
    assert " needs the Python module " in last
    assert last.endswith(f"which is not installed: pip install 'kafscale[{extra}]'")
    assert "Traceback" not in errors


@pytest.mark.parametrize("words", WORK_WITHOUT, ids=" ".join)
def test_command_works_without_extras(
    without_extras: dict[str, tuple[int, str]], words: tuple[str, ...]
) -> None:
    assert without_extras[str(({}, words))][0] == 0


def test_own_missing_module_is_a_defect() -> None:
    with pytest.raises(ModuleNotFoundError), extra_needed("cluster", "a test"):
        import kafscale.none  # type: ignore[import-not-found]  # noqa: F401
    with pytest.raises(MissingExtraError, match="a test needs the Python module no_such_module, which"):  # noqa: SIM117
        with extra_needed("cluster", "a test"):
            import no_such_module  # type: ignore[import-not-found]  # noqa: F401


def test_all_has_every_extra() -> None:
    everything = set(of_extra("all"))
    for extra in EXTRAS:
        assert set(of_extra(extra)) <= everything
        assert not base().intersection(of_extra(extra))


def test_clients_of_clusters_are_no_base() -> None:
    assert base() == {
        *("click", "cramjam", "crc32c", "google-re2", "kafka-python", "lz4", "prometheus-client"),
        *("uvloop", "zstandard"),
    }


def test_the_blocked_modules_are_those_of_the_extras() -> None:
    assert {"aetcd", "boto3", "cryptography", "grpc", "joserfc", "numpy", "obstore", "pyarrow"} <= set(
        modules_of_extras()
    )
    assert {"click", "kafka", "kafscale", "lz4"}.isdisjoint(modules_of_extras())


def test_extra_is_named_as_pip_installs_it() -> None:
    """No text of the package names an extra that is not there."""
    root = Path(__file__).resolve().parent.parent
    for folder in ("kafscale", "spark_jobs", "docs"):
        for path in (root / folder).rglob("*"):
            if path.suffix in (".py", ".md"):
                for names in re.findall(r"(?<![\w-])kafscale\[([a-z, ]+)\]", path.read_text()):
                    assert set(names.replace(" ", "").split(",")) <= set(EXTRAS), path

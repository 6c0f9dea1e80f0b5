"""The options that every job shares: what they mean, and what they say when a value is not legal."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from kafscale.settings.broker import Settings
from spark_jobs.cli_options import (
    STORE_OPTIONS,
    SparkOptions,
    catalog_options,
    session_options,
    store_options,
)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for one in STORE_OPTIONS:
        monkeypatch.delenv(one.variable, raising=False)
    yield


@click.command()
@click.option("--own")
@store_options
@catalog_options
def job(own: str | None, settings: Settings, spark_options: SparkOptions) -> None:
    session = session_options(spark_options, settings, ["local.db.events"], app_name="a job")
    click.echo(
        json.dumps(
            {
                "own": own,
                "data_dir": str(settings.data_dir),
                "etcd": settings.etcd_endpoints,
                "bucket": settings.s3_bucket,
                "path_style": settings.s3_path_style,
                "catalogs": {one.name: dict(one.properties) for one in session.catalogs},
                "conf": dict(session.conf),
                "master": session.master,
                "ui": session.ui,
            }
        )
    )


def run(*arguments: str, environment: Mapping[str, str] | None = None) -> Result:
    return CliRunner().invoke(job, list(arguments), env=environment)


def test_the_shortest_call(tmp_path: Path) -> None:
    result = run("--data-dir", str(tmp_path / "data"), "--warehouse", str(tmp_path / "lake"))
    said = json.loads(result.output)
    assert said["data_dir"] == str(tmp_path / "data")
    assert said["catalogs"] == {"local": {"type": "hadoop", "warehouse": str(tmp_path / "lake")}}
    assert (said["conf"], said["master"], said["ui"]) == ({}, None, False)


def test_options_go_before_the_environment_which_says_the_rest(tmp_path: Path) -> None:
    result = run(
        "--bucket", "mine", "--own", "x",
        environment={
            "KAFSCALE_S3_BUCKET": "another",
            "KAFSCALE_ETCD_ENDPOINTS": "etcd-1:2379,etcd-2:2379",
            "KAFSCALE_S3_PATH_STYLE": "false",
        },
    )  # fmt: skip
    said = json.loads(result.output)
    assert (said["bucket"], said["path_style"], said["own"]) == ("mine", False, "x")
    assert len(said["etcd"]) == 2


def test_spark_is_configured_as_asked() -> None:
    result = run(
        "--conf", "spark.driver.memory=4g", "--conf", "spark.x=a=b", "--master", "local[3]", "--spark-ui"
    )  # fmt: skip
    said = json.loads(result.output)
    assert said["conf"] == {"spark.driver.memory": "4g", "spark.x": "a=b"}
    assert (said["master"], said["ui"]) == ("local[3]", True)


def test_a_relative_data_folder_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert json.loads(run("--data-dir", "data").output)["data_dir"] == str(tmp_path / "data")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bucket", "My_Bucket"], "--bucket 'My_Bucket' is not legal: it must be a bucket's name"),
        (["--path-style", "maybe"], "--path-style 'maybe' is not legal: it must be true or false"),
        (["--etcd", "etcd:port"], "--etcd 'etcd:port' is not legal"),
        (
            ["--etcd-prefix", "/a"],
            "--etcd-prefix (KAFSCALE_ETCD_PREFIX) needs --etcd (KAFSCALE_ETCD_ENDPOINTS) to be set",
        ),
        (["--etcd", "a:1"], "needs --bucket (KAFSCALE_S3_BUCKET) to be set"),
        (
            ["--etcd", "a:1", "--bucket", "topics", "--data-dir", "/d"],
            "--data-dir '/d' is of no use beside etcd and a bucket",
        ),
        (["--conf", "driver.memory=4g"], "--conf 'driver.memory' is not legal: it must be KEY=VALUE"),
    ],
)
def test_a_refusal_names_the_option_and_what_is_legal(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_help_shows_every_option_with_its_default() -> None:
    told = " ".join(CliRunner().invoke(job, ["--help"], terminal_width=200).output.split())
    for one in STORE_OPTIONS:
        assert one.option in told
        assert one.variable in told
    for option in ("--warehouse", "--catalog ", "--catalog-property", "--conf", "--master", "--spark-ui"):
        assert option in told

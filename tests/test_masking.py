"""Credentials in URLs do not reach errors and log lines."""

import io
import json
import logging

import pytest
from click.testing import CliRunner

from kafscale.commands.cli import main
from kafscale.errors import SettingError
from kafscale.masking import shown_value, without_credentials
from kafscale.ops.logs import configure_logging
from kafscale.settings.broker import LogFormat, LogLevel, load_settings


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("no URL, a@b and c:d@e", "no URL, a@b and c:d@e"),
        ("http://127.0.0.1:9000 answers", "http://127.0.0.1:9000 answers"),
        ("at http://user:pass@host:1/x?y=z", "at http://***@host:1/x?y=z"),
        ("http://token@host, http://a:b@c", "http://***@host, http://***@c"),
        ("http://user:p@ss@host", "http://***@host"),
        ("jdbc:postgresql://h/d?user=u&password=p&ssl=1", "jdbc:postgresql://h/d?user=u&password=***&ssl=1"),
        ("https://b/k?X-Amz-Signature=abc&partNumber=1", "https://b/k?X-Amz-Signature=***&partNumber=1"),
        ('{"url": "http://h:1", "client": "a@b"}', '{"url": "http://h:1", "client": "a@b"}'),
    ],
)
def test_credentials_of_urls_are_masked(text: str, masked: str) -> None:
    assert without_credentials(text) == masked


def test_shown_value_without_a_scheme_is_masked() -> None:
    assert shown_value("user:pass@etcd-0:2379,etcd-1:2379") == "'***@etcd-0:2379,etcd-1:2379'"


def test_shown_value_is_cut() -> None:
    assert len(shown_value("x" * 100_000)) < 400


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KAFSCALE_S3_ENDPOINT", "http://admin:hunter2@minio:9000"),
        ("KAFSCALE_ETCD_ENDPOINTS", "http://root:hunter2@etcd:2379,etcd-2:2379"),
        ("KAFSCALE_ETCD_ENDPOINTS", "root:hunter2@etcd:2379"),
    ],
)
def test_refused_url_hides_its_password(variable: str, value: str) -> None:
    with pytest.raises(SettingError) as refused:
        load_settings({variable: value})
    assert variable in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_command_error_hides_a_password(logging_as_before: None) -> None:
    result = CliRunner().invoke(main, ["dump", "ftp://user:hunter2@host/file"])
    assert result.exit_code != 0
    assert "hunter2" not in result.output + result.stderr
    assert "ftp://***@host/file" in result.stderr


@pytest.mark.parametrize("form", list(LogFormat))
def test_log_line_hides_a_password(logging_as_before: None, form: LogFormat) -> None:
    stream = io.StringIO()
    configure_logging(LogLevel.INFO, form, stream)
    try:
        raise OSError("cannot reach http://user:hunter2@host")
    except OSError:
        logging.getLogger("kafscale.tests").exception(
            "http://user:hunter2@host is away", extra={"endpoint": "http://user:hunter2@host"}
        )
    assert "hunter2" not in stream.getvalue()
    assert stream.getvalue().count("http://***@host") == 4
    if form is LogFormat.JSON:
        assert json.loads(stream.getvalue())["endpoint"] == "http://***@host"

"""The page of a broker process over HTTP: its address, the setting that switches it off, and the token."""

import base64
import http.client
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from tests.pages.html import parsed
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.waiting import PATIENCE_SEC


def get(
    broker: KafscaleBroker, target: str, headers: Mapping[str, str], method: str = "GET"
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(broker.host, broker.metrics_port, timeout=PATIENCE_SEC)
    with closing(connection):
        connection.request(method, target, headers=headers)
        response = connection.getresponse()
        return response, response.read()


def test_page_is_there_without_configuration(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        response, body = get(broker, "/", {})
        assert (response.status, response.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert str(broker.data_folder) in parsed(body).text
        assert "unsafe" not in response.headers["Content-Security-Policy"]
        head, nothing = get(broker, "/topics", {}, "HEAD")
        assert (head.status, nothing, head.headers["Cache-Control"]) == (200, b"", "no-store")
        assert get(broker, "/", {"Host": "evil.example"})[0].status == 421
        assert get(broker, "/", {}, "POST")[0].status == 405


def test_page_can_be_switched_off(tmp_path: Path) -> None:
    with running_broker(tmp_path, admin_page="false") as broker:
        response, body = get(broker, "/", {})
        assert (response.status, b"/metrics" in body) == (404, True)
        assert broker.http_get("/metrics")[0] == 200


def test_page_needs_the_token_of_the_metrics(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    with running_broker(tmp_path, metrics_token_file=file, authorizer="acl", super_users="User:a") as broker:
        response, body = get(broker, "/", {})
        assert response.status == 401
        assert response.headers["WWW-Authenticate"].startswith('Basic realm="')
        assert b"<" not in body
        given = base64.b64encode(b"anyone:secret").decode()
        assert get(broker, "/", {"Authorization": f"Basic {given}"})[0].status == 200
        assert get(broker, "/", {"Authorization": "Bearer secret"})[0].status == 200
        assert broker.http_get("/readyz")[0] == 200


def test_page_of_a_closed_broker_needs_a_token(tmp_path: Path) -> None:
    with running_broker(tmp_path, authorizer="acl", super_users="User:a") as broker:
        response, body = get(broker, "/topics", {})
        assert (response.status, b"KAFSCALE_METRICS_TOKEN_FILE" in body) == (403, True)
        assert get(broker, "/metrics", {})[0].status == 200

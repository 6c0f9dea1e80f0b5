"""An Iceberg REST catalog over HTTP: the requests that writers make, answered by pyiceberg's SQL catalog.

A commit is checked against the requirements that it names and replaces exactly the metadata it was made from. The
answer of a commit can be lost on order: then the client knows as little as after a time-out.
"""

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

_SEPARATOR: Final = "\x1f"
_NO_ANSWER: Final = 0
# Of a request to create a table; pyiceberg's model of it wants them, and its client leaves them out.
_OPTIONAL: Final = {"location": None, "partition-spec": None, "write-order": None}
_STATUS: Final = {
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
}
_PATH: Final = re.compile(
    r"/v1(/config|/namespaces(?:/(?P<namespace>[^/]+)(?P<tables>/tables(?:/(?P<table>[^/]+)(?P<metrics>/metrics)?)?)?)?)"
)


class RestCatalogServer(ThreadingHTTPServer):
    """The catalog. `losing`: the kind of update, such as `set-snapshot-ref`, whose next commit is not answered.

    `commits`: the kinds of updates of each commit that was made; `lost`: of those without an answer.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        folder.mkdir(parents=True, exist_ok=True)
        self.catalog = SqlCatalog(
            "rest", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=f"file://{folder}"
        )
        # SQLite has one writer, and so has this server.
        self.lock = threading.Lock()
        self.staged: dict[tuple[str, ...], Table] = {}
        self.losing: str | None = None
        self.commits: list[list[str]] = []
        self.lost: list[list[str]] = []

    @property
    def uri(self) -> str:
        """For `--catalog-property lake.uri=...`, and `--to`."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RestCatalogServer

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, *_: Any) -> None:
        """A test's output is not a log of requests."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.server.lock:
            try:
                status, answer = self._answer(body)
            except tuple(_STATUS) as problem:
                status = _STATUS[type(problem)]
                error = {"message": str(problem), "type": type(problem).__name__, "code": status}
                answer = {"error": error}
        if status == _NO_ANSWER:
            self.close_connection = True
            return
        data = b"" if answer is None or self.command == "HEAD" else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _answer(self, body: bytes) -> tuple[int, Any]:
        """Status and body; `_NO_ANSWER` for one that is lost."""
        match = _PATH.fullmatch(self.path.partition("?")[0])
        if match is None:
            raise NoSuchNamespaceError(f"{self.path} is not served here")
        if match[1] == "/config":
            return 200, {"defaults": {}, "overrides": {}}
        if match["namespace"] is None:
            return self._namespaces(body)
        namespace = tuple(unquote(match["namespace"]).split(_SEPARATOR))
        if match["tables"] is None:
            return self._namespace(namespace)
        if match["table"] is None:
            return self._tables(namespace, body)
        if match["metrics"] is not None:
            return 204, None
        return self._table((*namespace, unquote(match["table"])), body)

    def _namespaces(self, body: bytes) -> tuple[int, Any]:
        catalog = self.server.catalog
        if self.command == "GET":
            return 200, {"namespaces": [list(one) for one in catalog.list_namespaces()]}
        wanted = json.loads(body)
        catalog.create_namespace(tuple(wanted["namespace"]), wanted.get("properties") or {})
        return 200, {"namespace": wanted["namespace"], "properties": wanted.get("properties") or {}}

    def _namespace(self, namespace: tuple[str, ...]) -> tuple[int, Any]:
        catalog = self.server.catalog
        if not catalog.namespace_exists(namespace):
            raise NoSuchNamespaceError(f"there is no namespace {namespace}")
        if self.command == "DELETE":
            catalog.drop_namespace(namespace)
            return 204, None
        return 200, {
            "namespace": list(namespace),
            "properties": dict(catalog.load_namespace_properties(namespace)),
        }

    def _tables(self, namespace: tuple[str, ...], body: bytes) -> tuple[int, Any]:
        catalog = self.server.catalog
        if self.command == "GET":
            names = [one[-1] for one in catalog.list_tables(namespace)]
            return 200, {"identifiers": [{"namespace": list(namespace), "name": one} for one in names]}
        wanted = CreateTableRequest.model_validate(_OPTIONAL | json.loads(body))
        create = catalog._create_staged_table if wanted.stage_create else catalog.create_table
        created = create(
            (*namespace, wanted.name),
            schema=wanted.table_schema,
            location=wanted.location,
            partition_spec=wanted.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            sort_order=wanted.write_order or UNSORTED_SORT_ORDER,
            properties=wanted.properties,
        )
        if wanted.stage_create:
            self.server.staged[created.name()] = created
        return 200, _loaded(created)

    def _table(self, name: tuple[str, ...], body: bytes) -> tuple[int, Any]:
        catalog = self.server.catalog
        if self.command == "DELETE":
            catalog.drop_table(name)
            return 204, None
        if self.command != "POST":
            return 200, _loaded(catalog.load_table(name))
        # A table that is made in a transaction does not exist before the commit.
        staged = None if catalog.table_exists(name) else self.server.staged.pop(name, None)
        table = staged or catalog.load_table(name)
        wanted = CommitTableRequest.model_validate({"identifier": _identifier(name)} | json.loads(body))
        committed = catalog.commit_table(table, wanted.requirements, wanted.updates)
        kinds: list[str] = [one.action for one in wanted.updates]
        self.server.commits.append(kinds)
        if self.server.losing in kinds:
            self.server.losing = None
            self.server.lost.append(kinds)
            return _NO_ANSWER, None
        return 200, json.loads(committed.model_dump_json(by_alias=True))


def _identifier(name: tuple[str, ...]) -> dict[str, Any]:
    return {"namespace": list(name[:-1]), "name": name[-1]}


def _loaded(table: Table) -> dict[str, Any]:
    return {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(table.metadata.model_dump_json(by_alias=True)),
        "config": {},
    }


@contextlib.contextmanager
def rest_catalog_server(folder: Path) -> Iterator[RestCatalogServer]:
    """A server for the block, with its tables below `folder`."""
    server = RestCatalogServer(folder)
    thread = threading.Thread(
        target=server.serve_forever, name="rest-catalog", kwargs={"poll_interval": 0.05}
    )
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        server.catalog.close()

"""A small HTTP server that answers as a test says, for tests of what speaks to the Kubernetes API."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kopf
from aiohttp import web

from kafscale.operator.kube.access import KubeAccess


@dataclass(frozen=True, slots=True)
class Call:
    """The request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


Answer = tuple[int, Any]
Respond = Callable[[Call], Answer | Awaitable[Answer]]


def refusal(status: int, reason: str, message: str = "no") -> Answer:
    """As the API says no."""
    return status, {
        "kind": "Status",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": status,
    }


def access_to(server: str, token: str | None = None, token_file: Path | None = None) -> KubeAccess:
    """An identity of namespace `ns` at that URL."""
    return KubeAccess(kopf.ConnectionInfo(server=server, default_namespace="ns", token=token), token_file)


@asynccontextmanager
async def serving(respond: Respond) -> AsyncIterator[tuple[KubeAccess, list[Call]]]:
    """Where it is, and all that was asked so far."""
    calls: list[Call] = []

    async def handle(request: web.Request) -> web.Response:
        text = await request.text()
        call = Call(
            request.method,
            request.path,
            dict(request.query),
            {name.lower(): value for name, value in request.headers.items()},
            json.loads(text) if text else None,
        )
        calls.append(call)
        answer = respond(call)
        status, body = answer if isinstance(answer, tuple) else await answer
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=status, text=text, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    try:
        yield access_to(f"http://127.0.0.1:{port}", token="secret"), calls
    finally:
        await runner.cleanup()

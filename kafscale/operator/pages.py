"""The operator's pages: `/healthz`, `/readyz` and `/metrics`."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from kafscale.errors import cannot_listen
from kafscale.settings.kinds import Address


class Pages:
    """Served on the event loop, so that a blocked loop fails the probe.

    `problem`: returns why the operator is not alive, or None. A stand-by is ready, too.
    """

    def __init__(self, metrics: CollectorRegistry, problem: Callable[[], str | None]) -> None:
        self._metrics = metrics
        self._problem = problem
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listens; returns the port. Raises `StartupError`."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._health),
                web.get("/readyz", self._health),
                web.get("/metrics", self._samples),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host or None, port).start()
        except OSError as error:
            await self.stop()
            raise cannot_listen(Address(host, port), "metrics", error, "--metrics-addr") from error
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stops serving, if started."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        problem = self._problem()
        return web.Response(status=200 if problem is None else 503, text=(problem or "ok") + "\n")

    async def _samples(self, _: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._metrics), headers={"content-type": "text/plain; version=0.0.4"}
        )

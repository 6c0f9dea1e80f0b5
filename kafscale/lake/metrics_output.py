"""Outputs of the exporter's metrics: over HTTP while it runs, or into a file at its end."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server, write_to_textfile

from kafscale.errors import SettingError, cannot_listen
from kafscale.lake.export_metrics import ExportMetrics
from kafscale.settings.kinds import Address

_logger = logging.getLogger(__name__)


@contextmanager
def served_metrics(metrics: ExportMetrics, address: Address) -> Iterator[int]:
    """Serve them and the process's own at every path over HTTP, meanwhile; gives the port, the system's for 0.

    Raises `StartupError` when the address cannot be listened on.
    """
    registry = CollectorRegistry()
    registry.register(metrics)
    ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(address.port, address.host, registry)
    except OSError as error:
        raise cannot_listen(address, "metrics", error, "--metrics-addr") from error
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def read_metrics_file(metrics: ExportMetrics, path: Path) -> None:
    """Let the counters go on from what an earlier run wrote, if there is anything.

    A file that cannot be understood is said in the log and written over later: counters may begin at 0 again.
    Raises `SettingError` when the path cannot be one of a metrics file.
    """
    if path.suffix != ".prom" or not path.parent.is_dir():
        raise SettingError(
            f"--metrics-file {str(path)!r} is not legal: it is a file in an existing folder with a name that ends "
            "in .prom, as node_exporter's textfile collector asks for"
        )
    try:
        metrics.go_on_from(path.read_text())
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        _logger.warning(
            "the metrics of earlier runs cannot be read; counters begin at 0",
            extra={"path": str(path), "error": str(error)},
        )


def write_metrics_file(metrics: ExportMetrics, path: Path) -> None:
    """Replace the file by the current metrics, atomically. Raises `OSError`."""
    registry = CollectorRegistry()
    registry.register(metrics)
    write_to_textfile(str(path), registry)

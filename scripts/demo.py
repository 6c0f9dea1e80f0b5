"""`make demo`: the whole story on an empty machine. Orders go to a broker, from there to Iceberg, and SQL reads them.

Run it as `python -m scripts.demo`. Everything is in a temporary folder, which is removed at the end. The jobs run in
this process, one after the other in one Spark session: starting Spark for each one took most of the time.
"""

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import click

from scripts.demo_orders import PARTITIONS, TOPIC, Shop
from scripts.local_cluster import HOST, ClusterError, Server

TABLE = "local.shop.orders"
DEAD_LETTERS = f"{TABLE}_dead_letters"
FIRST_ORDERS = 5000
START_TIMEOUT_S = 60.0

QUERIES = (
    (
        "Turnover by country, from the table alone: the broker takes no part in this.",
        f"""\
SELECT value.country, count(*) AS orders, round(sum(value.amount), 2) AS turnover,
       count(value.coupon) AS with_coupon
FROM {TABLE} GROUP BY value.country ORDER BY turnover DESC""",
    ),
    (
        "What was no JSON is not lost: its coordinates, why, and the bytes as they came.",
        f"SELECT partition, offset, error FROM {DEAD_LETTERS} ORDER BY partition, offset LIMIT 5",
    ),
    (
        "Each export was one commit, which says itself which offsets the table has had from then on.",
        f"""\
SELECT committed_at, summary['added-records'] AS rows,
       get_json_object(summary['kafscale.export.{TOPIC}'], '$.exported') AS offsets_by_partition
FROM {TABLE}.snapshots WHERE summary['kafscale.export.{TOPIC}'] IS NOT NULL ORDER BY committed_at""",
    ),
)


class DemoError(Exception):
    """The demo cannot continue; the message is for the user."""


class Demo:
    """The broker, the shop and the commands, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data, self._warehouse = folder / "data", folder / "warehouse"
        port, metrics_port = _free_ports(2)
        self._bootstrap = f"{HOST}:{port}"
        self._broker = Server(
            name="broker",
            command=[str(Path(sys.executable).parent / "kafscale"), "serve"],
            environment=os.environ
            | {
                "KAFSCALE_BROKER_ADDR": self._bootstrap,
                "KAFSCALE_METRICS_ADDR": f"{HOST}:{metrics_port}",
                "KAFSCALE_DATA_DIR": str(self._data),
            },
            log=folder / "broker.log",
            ready_port=metrics_port,
            ready_path="/readyz",
        )

    @contextlib.contextmanager
    def broker(self) -> Iterator[None]:
        """Start a broker and return once it serves. Raises `DemoError`, `ClusterError`."""
        self._broker.start()
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            while not self._broker.ready():
                if time.monotonic() > deadline:
                    raise DemoError(f"the broker is not ready after {START_TIMEOUT_S:.0f} s")
                time.sleep(0.1)
            yield
        finally:
            self._broker.stop()
            self._broker.wait()

    def shop(self) -> Shop:
        """Start a producer of orders."""
        return Shop(self._bootstrap, seed=7)

    def export(self) -> None:
        """Run a command as any user would. Raises `DemoError`."""
        from spark_jobs import export

        run_job(export, *self.common_arguments(), "--partition-by", "days(timestamp)")

    def exports(self) -> None:
        """The state of exports from the metadata store. Raises `DemoError`."""
        print("\n    $ kafscale exports\n", flush=True)
        kafscale = self._broker.command[0]
        done = subprocess.run([kafscale, "exports"], env=dict(self._broker.environment), check=False)
        if done.returncode != 0:
            raise DemoError(f"kafscale exports ended with exit code {done.returncode}")

    def reconcile(self) -> None:
        """Raises `DemoError` if topic and table differ."""
        from spark_jobs import reconcile

        run_job(reconcile, *self.common_arguments())

    def common_arguments(self) -> list[str]:
        """The options that export and reconcile share."""
        return [
            "--topic", TOPIC, "--table", TABLE, "--value-format", "json", "--key-format", "string",
            "--warehouse", str(self._warehouse), "--data-dir", str(self._data),
        ]  # fmt: skip

    def query(self, expected: Shop) -> None:
        """Query the tables with SQL. Raises `DemoError` if a record is missing, or is there twice."""
        from spark_jobs.catalogs import Catalog
        from spark_jobs.session import open_session
        from spark_jobs.session_options import SessionOptions

        catalog = Catalog(name="local", properties={"type": "hadoop", "warehouse": str(self._warehouse)})
        spark = open_session(SessionOptions(catalogs=[catalog], app_name="demo"))
        for explanation, query in QUERIES:
            _say(explanation)
            print(textwrap.indent(query, "    sql> "), flush=True)
            spark.sql(query).show(truncate=100)
        found = {
            table: len(spark.sql(f"SELECT DISTINCT partition, offset FROM {table}").collect())
            for table in (TABLE, DEAD_LETTERS)
        }
        rows = {table: spark.table(table).count() for table in found}
        wanted = {TABLE: expected.sent - expected.broken, DEAD_LETTERS: expected.broken}
        if not found == rows == wanted:
            raise DemoError(
                f"sent and in the tables differ: {wanted} were sent, {rows} are rows, {found} distinct"
            )
        _say(
            f"{expected.sent} records were acknowledged to the shop. {rows[TABLE]} are in {TABLE} and "
            f"{rows[DEAD_LETTERS]} in {DEAD_LETTERS}: each of them once."
        )


def run_job(job: ModuleType, *arguments: str) -> None:
    """Run a job's command in the open Spark session. Raises `DemoError` if it fails."""
    print(f"\n    $ python -m {job.__name__} {shlex.join(arguments)}\n", flush=True)
    try:
        job.main.main(list(arguments), prog_name=job.__name__, standalone_mode=False)
    except click.ClickException as problem:
        raise DemoError(f"{job.__name__}: {problem.format_message()}") from problem
    except SystemExit as ended:
        if ended.code:
            raise DemoError(f"{job.__name__} ended with exit code {ended.code}") from ended


def end_spark() -> None:
    """Close the session of the jobs, if one was opened."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


def run_story(demo: Demo) -> None:
    """Run the demo. Raises `DemoError`, `ClusterError`, the client's errors."""
    _head("1. A broker, and orders of a web shop")
    with demo.broker():
        _say(
            "It keeps its records in a folder; in a cluster that is a bucket. Nothing is configured but the ports."
        )
        shop = demo.shop()
        try:
            shop.send(FIRST_ORDERS)
            _say(
                f"{shop.sent} orders are in topic {TOPIC!r}, in {PARTITIONS} partitions, sent with kafka-python: "
                f"JSON with a key and headers. {shop.broken} of them are broken, as it happens."
            )
            _head("2. Export to an Iceberg table, while the shop goes on")
            _say(
                "It reads the segments, not the broker, and makes the table. Meanwhile a new release of the shop "
                "sends orders with a field more."
            )
            shop.open()
            demo.export()
        finally:
            shop.close()
        _head("3. Export once more")
        _say(
            f"There are {shop.sent} orders now. The table itself says what it has, so this brings only what is new, "
            "and adds the new field to the table."
        )
        demo.export()
        _head("4. Do topic and table agree?")
        demo.reconcile()
        _say("And this is what anyone sees who asks the metadata store:")
        demo.exports()
    _head("5. SQL over the table; the broker has ended")
    demo.query(shop)


def _head(text: str) -> None:
    print(f"\n{text}\n{'=' * len(text)}", flush=True)


def _say(text: str) -> None:
    print(f"\n{textwrap.fill(text, 100)}", flush=True)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; exit code 0 if every record was found once, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the folder with the data and the table")
    options = parser.parse_args(arguments)
    # SIGTERM also cleans up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # Variables of this shell are meant for other brokers.
    for name in [name for name in os.environ if name.startswith("KAFSCALE_")]:
        del os.environ[name]
    folder = Path(tempfile.mkdtemp(prefix="kafscale-demo-"))
    began = time.monotonic()
    try:
        run_story(Demo(folder))
        print(
            f"\nThat took {time.monotonic() - began:.0f} s. docs/lake-export.md has the rest of it.",
            flush=True,
        )
    except (DemoError, ClusterError) as error:
        print(f"make demo: {error}", file=sys.stderr, flush=True)
        with contextlib.suppress(FileNotFoundError):
            print(
                f"The broker's log ends with:\n{(folder / 'broker.log').read_text()[-2000:]}", file=sys.stderr
            )
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        end_spark()
        if options.keep:
            print(f"Data and tables are in {folder}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

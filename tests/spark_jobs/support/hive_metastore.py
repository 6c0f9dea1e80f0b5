"""A Hive metastore of its own: the one among PySpark's jars, with an embedded Derby database."""

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark

from tests.support.process import ServerProcess, clean_environment
from tests.support.waiting import wait_until

_MAIN = "org.apache.hadoop.hive.metastore.HiveMetaStore"
_DERBYS_SQL = "org.apache.derby.tools.ij"

# Iceberg takes a lock for each commit. Hive makes these tables in its own tests only; else its schema tool does.
_TABLES_OF_LOCKS = """
CREATE TABLE TXNS (TXN_ID bigint PRIMARY KEY, TXN_STATE char(1) NOT NULL, TXN_STARTED bigint NOT NULL,
  TXN_LAST_HEARTBEAT bigint NOT NULL, TXN_USER varchar(128) NOT NULL, TXN_HOST varchar(128) NOT NULL);
CREATE TABLE HIVE_LOCKS (HL_LOCK_EXT_ID bigint NOT NULL, HL_LOCK_INT_ID bigint NOT NULL, HL_TXNID bigint,
  HL_DB varchar(128) NOT NULL, HL_TABLE varchar(128), HL_PARTITION varchar(767), HL_LOCK_STATE char(1) NOT NULL,
  HL_LOCK_TYPE char(1) NOT NULL, HL_LAST_HEARTBEAT bigint NOT NULL, HL_ACQUIRED_AT bigint,
  HL_USER varchar(128) NOT NULL, HL_HOST varchar(128) NOT NULL, HL_HEARTBEAT_COUNT integer,
  HL_AGENT_INFO varchar(128), HL_BLOCKEDBY_EXT_ID bigint, HL_BLOCKEDBY_INT_ID bigint,
  PRIMARY KEY (HL_LOCK_EXT_ID, HL_LOCK_INT_ID));
CREATE TABLE NEXT_LOCK_ID (NL_NEXT bigint NOT NULL);
INSERT INTO NEXT_LOCK_ID VALUES (1);
CREATE TABLE AUX_TABLE (MT_KEY1 varchar(128) NOT NULL, MT_KEY2 bigint NOT NULL, MT_COMMENT varchar(255),
  PRIMARY KEY (MT_KEY1, MT_KEY2));
"""


class HiveMetastore(ServerProcess):
    """`uri`: thrift://127.0.0.1:PORT. Its default warehouse is `folder / "warehouse"`."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__("hive-metastore", folder)
        self._port = port

    @property
    def uri(self) -> str:
        """For `--catalog-property lake.uri=...`."""
        return f"thrift://127.0.0.1:{self._port}"

    @property
    def warehouse(self) -> str:
        """Where tables go."""
        return f"file://{self.folder / 'warehouse'}"

    def start(self) -> "HiveMetastore":
        """Start it, and wait until it accepts connections."""
        database = f"jdbc:derby:{self.folder / 'derby'};create=true"
        properties = {
            "javax.jdo.option.ConnectionURL": database,
            "hive.metastore.warehouse.dir": self.warehouse,
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            # Libraries that Spark does not bring.
            "hive.async.log.enabled": "false",
            "datanucleus.connectionPoolingType": "NONE",
        }
        (self.folder / "hive-site.xml").write_text(
            "<configuration>"
            + "".join(
                f"<property><name>{name}</name><value>{value}</value></property>"
                for name, value in properties.items()
            )
            + "</configuration>"
        )
        tables = self.folder / "locks.sql"
        tables.write_text(f"CONNECT '{database}';\n{_TABLES_OF_LOCKS}")
        done = subprocess.run(
            [*self._java(), _DERBYS_SQL, str(tables)],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
        )
        assert done.returncode == 0 and "ERROR" not in done.stdout, done.stdout + done.stderr
        self.launch([*self._java(), _MAIN, "-p", str(self._port)], clean_environment())
        wait_until(self._answers, "the Hive metastore accepts connections")
        return self

    def _java(self) -> list[str]:
        jars = Path(pyspark.__file__).parent / "jars"
        return [
            "java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xmx512m",
            f"-Djava.io.tmpdir={self.folder}", f"-Dderby.stream.error.file={self.folder / 'derby.log'}",
            "-cp", f"{self.folder}:{jars}/*",
        ]  # fmt: skip

    def _answers(self) -> bool:
        assert self.exit_code is None, self.log_tail()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
            return True
        return False


def hive_metastore_missing() -> str | None:
    """Why there is none here, or None."""
    if shutil.which("java") is None:
        return "no java on the PATH"
    jars = Path(pyspark.__file__).parent / "jars"
    return None if list(jars.glob("hive-metastore-*.jar")) else f"no Hive metastore among the jars in {jars}"


@contextlib.contextmanager
def hive_metastore(folder: Path, port: int) -> Iterator[HiveMetastore]:
    """A running one; nothing of it is left after the block."""
    server = HiveMetastore(folder, port)
    try:
        yield server.start()
    finally:
        server.close()

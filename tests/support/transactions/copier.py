"""Kafka's TransactionalMessageCopier, which reads one partition and writes another topic in transactions."""

import json
from pathlib import Path

from tests.support.java import java_command
from tests.support.process import ServerProcess, clean_environment

_MAIN = "org.apache.kafka.tools.TransactionalMessageCopier"
_SIGTERM_EXIT_CODE = 143


class MessageCopier(ServerProcess):
    """A copier of one partition, which may be ended and started again. It ends at the end of its partition."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        source: str,
        partition: int,
        target: str,
        *,
        transaction_size: int,
        timeout_ms: int,
    ) -> None:
        super().__init__(f"copier-{partition}", folder)
        self._command = java_command(
            _MAIN,
            "--broker-list", bootstrap,
            "--input-topic", source,
            "--input-partition", str(partition),
            "--output-topic", target,
            "--consumer-group", f"{target}-group-{partition}",
            "--transactional-id", f"{target}-{partition}",
            "--transaction-size", str(transaction_size),
            "--transaction-timeout", str(timeout_ms),
            "--enable-random-aborts",
            "--use-group-metadata",
        )  # fmt: skip

    def start(self) -> None:
        """Start it where its group's offset is."""
        self.launch(self._command, clean_environment())

    def clean_exit_code(self) -> int:
        return _SIGTERM_EXIT_CODE

    @property
    def is_done(self) -> bool:
        """True if it has ended by itself. Raises AssertionError if it has failed."""
        code = self.exit_code
        assert code in (None, 0), f"{self.name} ended with exit code {code}\n{self.log_tail()}"
        return code == 0

    @property
    def committed(self) -> int:
        """How many records it has committed since its last start, as far as it says."""
        last_run = self.log_text().rpartition("--- java")[2]
        lines = last_run.split("\n")[:-1]  # the last is empty, or not yet whole
        rows = [json.loads(line) for line in lines if line.startswith("{")]
        return int(rows[-1]["totalProcessed"]) if rows else 0

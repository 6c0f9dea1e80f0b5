"""The benchmark's side of a Spark process (`bench.lake_session`): sends requests, reads answers, stops it."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.lake_specs import Cost, Digest, ReadSpec, SessionSpec

_ROOT = Path(__file__).resolve().parent.parent
_STOP_TIMEOUT_SECONDS = 60.0


class SparkProcessError(Exception):
    """Spark failed; the text includes the end of its log."""


class SparkProcess:
    """One session, used as a context; not for concurrent use."""

    def __init__(self, spec: SessionSpec) -> None:
        folder = Path(spec.folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "spark.log"
        environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.lake_session"],
                cwd=_ROOT,
                env={
                    **environment,
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    # Spark's workers find the project where this process found it.
                    "PYTHONPATH": str(_ROOT),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._spec = spec

    def __enter__(self) -> "SparkProcess":
        self._ask(dataclasses.asdict(self._spec))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def read(self, spec: ReadSpec) -> Cost:
        """Raises `SparkProcessError`."""
        return Cost(**self._ask({"do": "read", "spec": dataclasses.asdict(spec)}))

    def digest(self, spec: ReadSpec) -> Digest:
        """Raises `SparkProcessError`."""
        return Digest(**self._ask({"do": "digest", "spec": dataclasses.asdict(spec)}))

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            end = self._log.read_text(errors="replace")[-3000:]
            raise SparkProcessError(f"Spark did not answer {str(question)[:200]}\n{end}")
        answered: dict[str, Any] = json.loads(answer)
        return answered

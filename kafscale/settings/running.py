"""The settings of the process: its stop and its log."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kafscale.settings.kinds import boolean, choice, file, integer
from kafscale.settings.rows import derived, setting


class LogLevel(StrEnum):
    """The least severe log line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The form of a log line."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, kw_only=True)
class RunningSettings:
    """How the broker stops, what it logs, and who may read its metrics; a part of `Settings`."""

    shutdown_timeout_ms: int = setting(
        "KAFSCALE_SHUTDOWN_TIMEOUT_MS",
        integer(0, 3_600_000),
        "10000",
        "How long a stopping broker flushes and answers at most before it exits.",
    )
    shutdown_linger_ms: int = setting(
        "KAFSCALE_SHUTDOWN_LINGER_MS",
        integer(0, 3_600_000),
        "3000",
        "How long a broker that has handed everything over goes on showing its clients so: some take the end of "
        "their connection for an error. It ends with the last connection.",
    )
    metrics_token_file: Path | None = derived(
        "KAFSCALE_METRICS_TOKEN_FILE",
        file(),
        "none",
        "A file with a token, read at each request: `/metrics` is answered only to requests with "
        "`Authorization: Bearer` and this token, the page of KAFSCALE_ADMIN_PAGE also to browsers that send it as "
        "password. `/healthz` and `/readyz` need none.",
    )
    admin_page: bool = setting(
        "KAFSCALE_ADMIN_PAGE",
        boolean(),
        "true",
        "Whether the broker shows a page for people beside its metrics (docs/page.md). Where clients authenticate "
        "themselves or access rules apply, it is shown only with KAFSCALE_METRICS_TOKEN_FILE.",
    )
    log_level: LogLevel = setting(
        "KAFSCALE_LOG_LEVEL",
        choice(LogLevel),
        "info",
        "The least severe log line that is written. Commands other than `serve` and `pod` leave out `info` lines.",
    )
    log_format: LogFormat = setting(
        "KAFSCALE_LOG_FORMAT",
        choice(LogFormat),
        "text",
        "Whether log lines are text for people or JSON objects for programs.",
    )

"""How to reach etcd, and how long to wait for it."""

from dataclasses import dataclass, field
from pathlib import Path

from kafscale.settings.broker import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdConfig:
    """Where etcd is and as whom to speak to it.

    `endpoints`: `http://host:port` or `https://host:port`. Every key lies under `prefix` and a `/`.
    """

    endpoints: tuple[str, ...]
    prefix: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> "EtcdConfig":
        """The part of the settings that etcd needs; its endpoints must be set."""
        if settings.etcd_endpoints is None:
            raise ValueError("KAFSCALE_ETCD_ENDPOINTS is not set")
        return cls(
            endpoints=settings.etcd_endpoints,
            prefix=settings.etcd_prefix or f"/kafscale/{settings.s3_namespace}",
            username=settings.etcd_username,
            password=settings.etcd_password,
            ca=settings.etcd_ca,
            cert=settings.etcd_cert,
            key=settings.etcd_key,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdTimeouts:
    """How long calls may take. A call begins its last attempt `attempt_sec` before its own end at the latest."""

    call_sec: float = 5.0
    attempt_sec: float = 2.0
    connect_sec: float = 2.0
    first_pause_sec: float = 0.05
    longest_pause_sec: float = 1.0


DEFAULT_TIMEOUTS = EtcdTimeouts()

"""The one log directory that brokers show to clients."""

from kafscale.settings.broker import Settings


def log_directory(settings: Settings) -> str:
    """The namespace in the object store, as an absolute path."""
    return f"/{settings.s3_namespace}"

"""Failures of an export's commit, whichever engine writes the table."""

from kafscale.errors import KafscaleError
from kafscale.lake.export_state import ExportState


class StaleExportError(KafscaleError):
    """Another exporter has committed to the table since the state was read; nothing of this commit is visible."""

    def __init__(self, table: str, before: ExportState, found: ExportState) -> None:
        super().__init__(
            f"another exporter of topic {before.topic!r} has committed to {table} (commit "
            f"{found.commit_id or 'none'}, not {before.commit_id or 'none'}); nothing of this batch is visible"
        )


class CommitUnknownError(KafscaleError):
    """The outcome of the commit is unknown: the table shows it, before anything else is committed."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(
            f"it is not known whether the last commit to {table} happened ({reason}): run the export again, it goes "
            "on from what the table then says"
        )


class ExportMismatchError(KafscaleError):
    """The written rows are not those that the log's references promise; none of them is visible."""

    def __init__(self, topic: str, brought: int, wanted: int) -> None:
        super().__init__(
            f"{brought} records were brought of topic {topic!r}, which has {wanted} of them: run "
            f"`kafscale fsck --topic {topic}`"
        )


class TableRefusedError(KafscaleError):
    """The table cannot take the columns of the export."""

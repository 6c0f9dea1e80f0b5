"""The report of an export, which recommends Spark for topics that are much for one process. Pure."""

from typing import Final

from kafscale.lake.events import Offsets
from kafscale.lake.report import ExportReport

LARGE_OFFSETS: Final = 100_000_000
"""With small records about five minutes of a core."""


class AdvisedReport(ExportReport):
    """See `ExportReport`."""

    def topic_started(self, topic: str, table: str, start: Offsets, end: Offsets) -> None:
        """See `ExportEvents`."""
        super().topic_started(topic, table, start, end)
        offsets = sum(max(0, end[partition] - start.get(partition, 0)) for partition in end)
        if offsets > LARGE_OFFSETS:
            self.say(
                f"{topic}: {offsets:,} offsets are much for one process; the Spark job (python -m spark_jobs.export) "
                "exports into the same table with all cores: docs/lake-export.md"
            )

"""The options of a job's Spark session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark_jobs.catalogs import Catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Catalogs, and how Spark runs.

    `conf`: Spark's configuration as `--conf` gives it. `master`: only for a Spark that this process starts. `ui`:
    whether Spark's web page is served.
    """

    catalogs: Sequence[Catalog] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None
    app_name: str = "kafscale"
    ui: bool = False

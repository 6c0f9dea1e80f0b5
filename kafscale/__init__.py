"""A Kafka-wire-compatible broker that keeps its records in an object store, and reads of what lies there.

`read` gives a topic as Arrow, without a broker: docs/read-topics.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import polars
    import pyarrow

    from kafscale.reader.bounds import PointLike
    from kafscale.reader.topic_batches import ReadProgress

__all__ = ["read", "to_polars"]


def read(
    source: str | os.PathLike[str] | None,
    topic: str,
    *,
    start: PointLike | Mapping[int, PointLike] | None = None,
    end: PointLike | Mapping[int, PointLike] | None = None,
    partitions: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
    on_expired: str = "error",
    isolation_level: str = "read_committed",
    progress: bool | Callable[[ReadProgress], None] = False,
    settings: Mapping[str, str] | None = None,
) -> pyarrow.RecordBatchReader:
    """The topic's records from `start` to before `end`, as published now, straight from the stores.

    Partition after partition, each in the order of its offsets. The columns are key, value, topic, partition,
    offset, timestamp, timestampType and headers, unless `columns` names some. Needs the extra `arrow`.

    `source`: a broker's data folder; `s3://bucket/namespace` (also gs://, az://), with the credentials and the
    etcd that the environment's settings name, or without etcd by the bucket alone; None: the stores that the
    settings name. `settings`: settings by their names, over those of the environment.

    `start`, `end`: an offset, "earliest", "latest", or a time with its zone (a datetime, or text in ISO 8601),
    which is that of the first record that is not older; or a mapping of partitions to these.
    `on_expired`: "error", or "earliest" to begin with what is there. `isolation_level`: "read_committed" ends at the
    last stable offset, and leaves out what was aborted; "read_uncommitted" brings all. `progress`: True for a line
    on standard error, or a function that is called with a `ReadProgress`.

    Raises `ImportError` without the extra, and subclasses of `kafscale.errors.KafscaleError`: `ReadOptionError`
    (also a `ValueError`), `SettingError`, `UnknownTopicError`, `OffsetsGoneError`, `StartupError`, `StoreError`;
    while batches are read `CorruptDataError`, `StoreError`, and `OffsetsGoneError` for what expired meanwhile.
    """
    try:
        from kafscale.arrow.topic_read import read_topic
    except ModuleNotFoundError as problem:
        raise _missing_extra("kafscale.read", problem) from problem
    return read_topic(
        source,
        topic,
        start=start,
        end=end,
        partitions=partitions,
        columns=columns,
        on_expired=on_expired,
        isolation_level=isolation_level,
        progress=progress,
        settings=settings,
    )


def to_polars(reader: pyarrow.RecordBatchReader) -> polars.DataFrame:
    """The rest of the reader as a Polars data frame. Needs Polars."""
    try:
        import polars
    except ModuleNotFoundError as problem:
        raise ImportError("kafscale.to_polars needs Polars: pip install polars", name="polars") from problem
    return polars.DataFrame(reader)


def _missing_extra(what: str, problem: ModuleNotFoundError) -> ImportError:
    if (problem.name or "").partition(".")[0] not in ("pyarrow", "numpy", "numba", "llvmlite"):
        return problem
    return ImportError(f"{what} needs {problem.name}: pip install 'kafscale[arrow]'", name=problem.name)

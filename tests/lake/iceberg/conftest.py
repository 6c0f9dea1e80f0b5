"""A topic in embedded stores, and the command that exports it."""

from pathlib import Path

import pytest

from tests.lake.support.exporter import LakeExporter
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    return TopicWriter(embedded(tmp_path / "data"), "shop.orders", partitions=2)


@pytest.fixture
def exporter(writer: TopicWriter, tmp_path: Path, logging_as_before: None) -> LakeExporter:
    return LakeExporter(writer.settings, writer.topic, tmp_path / "lake")

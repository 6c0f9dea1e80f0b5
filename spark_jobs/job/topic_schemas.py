"""The registry's schemas in the export of one topic: those known so far, and those that a batch needed."""

import contextlib
import functools
import time
from collections.abc import Callable, Collection, Iterator
from typing import Final

from pyspark import Accumulator, SparkContext
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import SparkSession

from kafscale.errors import KafscaleError
from kafscale.lake.registry.client import RegistryAccess, RegistryClient, check_access
from kafscale.lake.registry.documents import SchemaDocument
from kafscale.lake.registry.object_cache import ObjectSchemaStore
from kafscale.lake.registry.schemas import RegistrySchemas, known_schemas
from kafscale.settings.broker import Settings
from spark_jobs.decoding.avro.schemas import is_writers_file
from spark_jobs.decoding.options import ValueOptions
from spark_jobs.decoding.schema_source import SchemaSource
from spark_jobs.registry_options import OnUnknownSchema, RegistryOptions

_MAX_REPORTED: Final = 1_000
_ASK_AGAIN_SEC: Final = 5.0
_LOOK_SEC: Final = 0.2
_SHOWN_IDS: Final = 10


def reads_latest(values: ValueOptions) -> bool:
    """True if nothing but the registry says which columns there are."""
    return values.schema is None and all(map(is_writers_file, values.schema_files))


class UnknownSchemaError(KafscaleError):
    """Values have schema ids that the registry does not have; nothing of the batch is visible."""

    def __init__(self, topic: str, url: str, ids: Collection[int]) -> None:
        shown = ", ".join(map(str, sorted(ids)[:_SHOWN_IDS])) + (", ..." if len(ids) > _SHOWN_IDS else "")
        super().__init__(
            f"topic {topic!r} has values with schema ids that the registry {url} does not have: {shown}; register "
            "them, or see that it is the producers' registry, or make dead letters of such values with "
            "--on-unknown-schema dead-letter"
        )


class _Ids(AccumulatorParam[frozenset[int]]):
    """A set of ids with a bound, whatever number of tasks adds to it."""

    def zero(self, value: frozenset[int]) -> frozenset[int]:
        return frozenset()

    def addInPlace(self, value1: frozenset[int], value2: frozenset[int]) -> frozenset[int]:  # noqa: N802
        joined = value1 | value2
        return joined if len(joined) <= _MAX_REPORTED else frozenset(sorted(joined)[:_MAX_REPORTED])


def _report(ids: Accumulator[frozenset[int]], schema_id: int) -> None:
    ids.add(frozenset((schema_id,)))


@contextlib.contextmanager
def opened_registry(options: RegistryOptions | None, settings: Settings) -> Iterator[RegistrySchemas | None]:
    """The registry and its cache for the time of a run; nothing is asked yet. Raises `SettingError`."""
    if options is None:
        yield None
        return
    access = RegistryAccess(
        url=options.url,
        user_info=options.user_info,
        token=options.token,
        ca_file=options.ca_file,
        timeout_sec=options.timeout_sec,
    )
    check_access(access)
    with contextlib.closing(ObjectSchemaStore(settings)) as store:
        schemas = RegistrySchemas(options.url, store, functools.partial(RegistryClient, access))
        with contextlib.closing(schemas):
            yield schemas


class TopicSchemas:
    """The schemas of one topic's values in one round. `check` raises if the topic's lease is lost.

    `stopping`: True if the run is to end.
    """

    def __init__(
        self,
        spark: SparkSession,
        topic: str,
        schemas: RegistrySchemas,
        options: RegistryOptions,
        check: Callable[[], None] = lambda: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        context: SparkContext = spark.sparkContext
        self._ids = context.accumulator(frozenset[int](), _Ids())
        self._topic = topic
        self._schemas = schemas
        self._options = options
        self._check = check
        self._stopping = stopping
        self._writers: dict[int, SchemaDocument] | None = None
        self._readers: dict[str, SchemaDocument] = {}
        self._refused: set[int] = set()

    @property
    def writers(self) -> dict[int, SchemaDocument]:
        """The known schemas by id; at first those that the topic's values had before."""
        if self._writers is None:
            self._writers = known_schemas(self._schemas, self._schemas.ids_of(self._topic))
        return self._writers

    def report(self, schema_id: int) -> None:
        """For tasks; see `ReportUnknown`."""
        _report(self._ids, schema_id)

    def source(self, *, reads_latest: bool, type_name: str | None) -> SchemaSource:
        """The schemas for one batch. `reads_latest`: the columns are those of the subject's newest schema.

        `type_name`: of the values that the subject is of, None for all values of the topic.
        """
        reader, subject = None, self._options.subject_of(self._topic, type_name)
        if reads_latest:
            if subject not in self._readers:
                self._readers[subject] = self._schemas.latest(subject)
            reader = self._readers[subject]
        return SchemaSource(
            reader=reader,
            writers=dict(self.writers),
            report_unknown=functools.partial(_report, self._ids),
            what=f"the schema of subject {subject!r}",
        )

    def learn(self) -> bool:
        """Get the schemas that were missing in what was decoded since the last call. True if there are new ones.

        Raises `UnknownSchemaError` for ids that the registry does not have, unless their values are dead letters, and
        `RegistryError`, `StoreError`.
        """
        missing = set(self._ids.value) - self._refused - self.writers.keys()
        self._ids.value = frozenset()
        if not missing:
            return False
        found = known_schemas(self._schemas, sorted(missing))
        unknown = missing - found.keys()
        if unknown and self._options.on_unknown is OnUnknownSchema.WAIT:
            found.update(self._waited_for(unknown))
        elif unknown and self._options.on_unknown is OnUnknownSchema.STOP:
            raise UnknownSchemaError(self._topic, self._schemas.url, unknown)
        self._refused |= missing - found.keys()
        if found:
            self.writers.update(found)
            self._readers.clear()  # a new writer may be a new version of what is read with
            self._schemas.remember(self._topic, self.writers.keys())
        return bool(found)

    def _waited_for(self, unknown: set[int]) -> dict[int, SchemaDocument]:
        until = time.monotonic() + self._options.wait_sec
        found: dict[int, SchemaDocument] = {}
        while unknown - found.keys():
            if self._pause(min(time.monotonic() + _ASK_AGAIN_SEC, until)) or time.monotonic() >= until:
                raise UnknownSchemaError(self._topic, self._schemas.url, unknown - found.keys())
            self._check()
            found.update(known_schemas(self._schemas, sorted(unknown - found.keys())))
        return found

    def _pause(self, until: float) -> bool:
        """Wait; True if the run is to end."""
        while not self._stopping() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SEC))
        return self._stopping()

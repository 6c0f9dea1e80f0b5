"""Command line options that all jobs share: where the topics and the tables are.

The options have the names of the broker's settings; all other settings come from the same environment variables.
"""

import functools
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn, TypeVar

import click

from kafscale.errors import KafscaleError, SettingError
from kafscale.masking import without_credentials
from kafscale.settings.broker import SETTINGS, SettingRow, Settings, load_settings
from spark_jobs.catalogs import TYPES, CatalogOptions, resolve_catalogs
from spark_jobs.session_options import SessionOptions

Command = TypeVar("Command", bound=Callable[..., Any])

EXIT_FAILED: Final = 1


@dataclass(frozen=True, slots=True)
class StoreOption:
    """A broker setting that has an option."""

    option: str
    variable: str
    metavar: str

    @property
    def parameter(self) -> str:
        """The name of click's parameter for its value."""
        return self.option.removeprefix("--").replace("-", "_")

    @property
    def row(self) -> SettingRow:
        """The setting."""
        return next(row for row in SETTINGS if row.variable == self.variable)


STORE_OPTIONS: Final = (
    StoreOption("--data-dir", "KAFSCALE_DATA_DIR", "DIR"),
    StoreOption("--etcd", "KAFSCALE_ETCD_ENDPOINTS", "HOST:PORT,..."),
    StoreOption("--etcd-prefix", "KAFSCALE_ETCD_PREFIX", "PREFIX"),
    StoreOption("--bucket", "KAFSCALE_S3_BUCKET", "NAME"),
    StoreOption("--region", "KAFSCALE_S3_REGION", "NAME"),
    StoreOption("--endpoint", "KAFSCALE_S3_ENDPOINT", "URL"),
    StoreOption("--path-style", "KAFSCALE_S3_PATH_STYLE", "true|false"),
    StoreOption("--namespace", "KAFSCALE_S3_NAMESPACE", "NAME"),
)


def store_options(command: Command) -> Command:
    """Options that say where the topics are; the command gets them as `settings`, a `Settings`.

    A value that is not legal ends the command with status 2, like click's own errors.
    """

    @functools.wraps(command)
    def with_settings(*arguments: Any, **parameters: Any) -> Any:
        given = {one: parameters.pop(one.parameter) for one in STORE_OPTIONS}
        texts = {one: value for one, value in given.items() if value is not None}
        try:
            settings = settings_from_options(texts, os.environ)
        except SettingError as error:
            raise click.UsageError(str(error)) from None
        return command(*arguments, settings=settings, **parameters)

    decorated: Any = with_settings
    for one in reversed(STORE_OPTIONS):
        decorated = click.option(
            one.option,
            metavar=one.metavar,
            help=one.row.documentation,
            show_default=f"{one.variable}, or {one.row.default}",
        )(decorated)
    return decorated  # type: ignore[no-any-return]


def settings_from_options(given: Mapping[StoreOption, str], environment: Mapping[str, str]) -> Settings:
    """The settings of the options, which override the environment. The data folder is absolute.

    Raises `SettingError`, which names the option rather than the setting.
    """
    for one, text in given.items():
        try:
            one.row.kind.parse(text.strip())
        except ValueError:
            raise SettingError(
                f"{one.option} {text!r} is not legal: it must be {one.row.kind.legal}"
            ) from None
    chosen = {one.variable: text for one, text in given.items()}
    try:
        settings = load_settings({**environment, **chosen})
    except SettingError as error:
        raise SettingError(_with_options(str(error))) from None
    if "KAFSCALE_DATA_DIR" in chosen and settings.etcd_endpoints and settings.s3_bucket:
        raise SettingError(
            f"--data-dir {chosen['KAFSCALE_DATA_DIR']!r} is of no use beside etcd and a bucket (--etcd, --bucket, or "
            "KAFSCALE_ETCD_ENDPOINTS and KAFSCALE_S3_BUCKET in the environment): give one or the other"
        )
    return replace(settings, data_dir=settings.data_dir.absolute())


def _with_options(message: str) -> str:
    for one in sorted(STORE_OPTIONS, key=lambda one: -len(one.variable)):
        message = message.replace(one.variable, f"{one.option} ({one.variable})")
    return message


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """The options for catalogs and Spark, as given; the tables are not known yet."""

    catalogs: CatalogOptions
    conf: Mapping[str, str]
    master: str | None = None
    ui: bool = False


def catalog_options(command: Command) -> Command:
    """Options that say where the tables are and how Spark runs; the command gets them as `spark_options`."""

    @functools.wraps(command)
    def with_spark(
        *arguments: Any,
        warehouse: str | None,
        catalogs: Sequence[str],
        catalog_properties: Sequence[str],
        master: str | None,
        conf: Sequence[str],
        spark_ui: bool,
        **parameters: Any,
    ) -> Any:
        try:
            options = SparkOptions(
                catalogs=CatalogOptions(
                    warehouse=warehouse, catalogs=catalogs, properties=catalog_properties
                ),
                conf=dict(conf_pair(text) for text in conf),
                master=master,
                ui=spark_ui,
            )
        except SettingError as error:
            raise click.UsageError(str(error)) from None
        return command(*arguments, spark_options=options, **parameters)

    decorated: Any = with_spark
    for option in reversed(_SPARK_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


_SPARK_OPTIONS: Final = (
    click.option(
        "--warehouse",
        metavar="DIR|URL",
        help="Where the catalog of --table keeps its tables. Without another option for that catalog it is a Hadoop "
        "catalog: tables are folders, and need no server.",
    ),
    click.option(
        "--catalog",
        "catalogs",
        multiple=True,
        metavar="NAME=TYPE",
        help=f"A catalog's type: {', '.join(TYPES)}, or the full name of a class. May be repeated.",
    ),
    click.option(
        "--catalog-property",
        "catalog_properties",
        multiple=True,
        metavar="NAME.KEY=VALUE",
        help="A property of a catalog as Iceberg's documentation names it, such as lake.uri=http://... A value "
        "env:VARIABLE is taken from the environment. May be repeated.",
    ),
    click.option(
        "--master",
        metavar="URL",
        show_default="spark-submit's, or local[*]: all cores of this machine",
        help="Spark's master.",
    ),
    click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        help="Spark's configuration, such as spark.driver.memory=4g. May be repeated.",
    ),
    click.option("--spark-ui", is_flag=True, help="Serve Spark's web page while the job runs."),
)


def session_options(
    options: SparkOptions, settings: Settings, tables: Sequence[str], *, app_name: str
) -> SessionOptions:
    """The options of a session with the catalogs of these tables. Raises `SettingError`."""
    return SessionOptions(
        catalogs=resolve_catalogs(options.catalogs, tables, settings, os.environ),
        conf=options.conf,
        master=options.master,
        app_name=app_name,
        ui=options.ui,
    )


def require_topics(topics: Sequence[str], pattern: re.Pattern[str] | None) -> None:
    """Raise click's error, which ends the command with status 2, if no topic is named."""
    if not topics and pattern is None:
        raise click.UsageError("no topic is named: give --topic or --topic-pattern")


def chosen_topics(
    topics: Sequence[str], pattern: re.Pattern[str] | None, known: Callable[[], Iterable[str]]
) -> list[str]:
    """The named topics and the known ones that match the pattern, each once.

    `known` is called only if there is a pattern. Raises `SettingError` if there is no topic.
    """
    chosen = list(dict.fromkeys(topics))
    if pattern is not None:
        chosen += [name for name in known() if pattern.fullmatch(name) and name not in chosen]
        if not chosen:
            raise SettingError(f"--topic-pattern {pattern.pattern!r} matches no topic")
    return chosen


def run_job(run: Callable[[], bool], exit_if_false: int) -> NoReturn:
    """Run a job and end the process: status 0 if it returns True, 2 for options that are not legal, 1 if it fails."""
    try:
        succeeded = run()
    except SettingError as problem:
        raise click.UsageError(str(problem)) from None
    except KafscaleError as problem:
        click.echo(f"error: {without_credentials(str(problem))}", err=True)
        sys.exit(EXIT_FAILED)
    sys.exit(0 if succeeded else exit_if_false)


def conf_pair(text: str) -> tuple[str, str]:
    """The two sides of a `--conf`. Raises `SettingError`."""
    key, equals, value = text.partition("=")
    if not (equals and key.startswith("spark.")):
        raise SettingError(
            f"--conf {key if equals else text!r} is not legal: it must be KEY=VALUE, and the key begins with 'spark.'"
        )
    return key.strip(), value

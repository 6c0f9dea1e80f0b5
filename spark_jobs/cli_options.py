"""Command line options that every job shares: where the topics are, and where the tables are.

The options have the names of the broker's settings; every other setting is taken from the same environment variables.
"""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import click

from kafscale.errors import SettingError
from kafscale.settings.broker import SETTINGS, SettingRow, Settings, load_settings
from spark_jobs.catalogs import TYPES, CatalogOptions, resolve_catalogs
from spark_jobs.session_options import SessionOptions

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class StoreOption:
    """A setting of the broker's that has an option."""

    option: str
    variable: str
    metavar: str

    @property
    def parameter(self) -> str:
        """The name that click passes its value by."""
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

    A value that is not legal ends the command as click's own errors do, with status 2.
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
    """The settings that the options give, over those of the environment. The data folder comes back absolute.

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
    """What the options say of catalogs and of Spark, before it is known which tables there are."""

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
        help="Where the catalog of --table keeps its tables. With nothing else said of that catalog it is a Hadoop "
        "catalog: tables are folders, and need no server.",
    ),
    click.option(
        "--catalog",
        "catalogs",
        multiple=True,
        metavar="NAME=TYPE",
        help=f"What kind a catalog is: {', '.join(TYPES)}, or the full name of a class. May be repeated.",
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
    """A session in which the catalogs of these tables are known. Raises `SettingError`."""
    return SessionOptions(
        catalogs=resolve_catalogs(options.catalogs, tables, settings, os.environ),
        conf=options.conf,
        master=options.master,
        app_name=app_name,
        ui=options.ui,
    )


def conf_pair(text: str) -> tuple[str, str]:
    """The two sides of a `--conf`. Raises `SettingError`."""
    key, equals, value = text.partition("=")
    if not (equals and key.startswith("spark.")):
        raise SettingError(
            f"--conf {key if equals else text!r} is not legal: it must be KEY=VALUE, and the key begins with 'spark.'"
        )
    return key.strip(), value

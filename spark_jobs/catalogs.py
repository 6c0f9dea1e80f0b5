"""Iceberg catalogs: from the command line's words to the properties that Iceberg takes. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafscale.errors import SettingError
from kafscale.settings.broker import Settings

TYPES: Final = ("hadoop", "hive", "rest", "glue", "jdbc", "nessie", "bigquery")
S3_FILE_IO: Final = "org.apache.iceberg.aws.s3.S3FileIO"
SPARK_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"
DEFAULT_REGION: Final = "us-east-1"
ENVIRONMENT_PREFIX: Final = "env:"

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_CLASS = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)+")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):/")
_S3_SCHEMES = ("s3", "s3a", "s3n")
_OBJECT_STORE_SCHEMES = (*_S3_SCHEMES, "gs", "abfs", "abfss", "wasb", "wasbs")
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "hadoop": ("warehouse",),
    "rest": ("uri",),
    "glue": ("warehouse",),
    "jdbc": ("uri", "warehouse"),
    "nessie": ("uri", "warehouse"),
}
_KEYS = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogOptions:
    """The catalog options of the command line; each pair in `catalogs` and `properties` as written."""

    warehouse: str | None = None
    catalogs: Sequence[str] = ()
    properties: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """A catalog and Iceberg's own properties of it. One without properties is defined by Spark's configuration."""

    name: str
    properties: Mapping[str, str] = field(default_factory=dict)

    def configuration(self) -> dict[str, str]:
        """The properties as Spark's configuration; empty for a catalog that Spark already has."""
        if not self.properties:
            return {}
        prefix = f"spark.sql.catalog.{self.name}"
        return {prefix: SPARK_CATALOG} | {f"{prefix}.{key}": value for key, value in self.properties.items()}


def resolve_catalogs(
    options: CatalogOptions, tables: Sequence[str], settings: Settings, environment: Mapping[str, str]
) -> tuple[Catalog, ...]:
    """The catalogs of these tables (by the first part of their names), and the other ones that the options name.

    `--warehouse` belongs to the first table's catalog. A warehouse in S3 is read and written with Iceberg's own S3
    client, with the endpoint, the region and the keys of `settings` unless the options give them. Raises
    `SettingError`.
    """
    types = dict(_typed(text) for text in options.catalogs)
    names = list(dict.fromkeys([*(table.split(".")[0] for table in tables), *types]))
    if not names:
        raise SettingError("no catalog is named: give a table's full name, or --catalog NAME=TYPE")
    properties: dict[str, dict[str, str]] = {name: {} for name in names}
    for name, kind in types.items():
        properties[name]["catalog-impl" if "." in kind else "type"] = kind
    for text in options.properties:
        name, key, value = _property(text, names)
        properties[name][key] = _resolved(text, value, environment)
    if options.warehouse is not None:
        _set_warehouse(properties[names[0]], names[0], options.warehouse)
    return tuple(
        Catalog(name=name, properties=_completed(name, given, settings, environment))
        for name, given in properties.items()
    )


def _typed(text: str) -> tuple[str, str]:
    name, equals, kind = text.partition("=")
    if not (equals and _NAME.fullmatch(name) and (kind in TYPES or _CLASS.fullmatch(kind))):
        raise SettingError(
            f"--catalog {text!r} is not legal: it must be NAME=TYPE, the type one of {', '.join(TYPES)} or the full "
            "name of a class"
        )
    return name, kind


def _property(text: str, names: Iterable[str]) -> tuple[str, str, str]:
    path, equals, value = text.partition("=")
    name, dot, key = path.partition(".")
    shown = path if equals else text
    if not (equals and dot and key and value):
        raise SettingError(
            f"--catalog-property {shown!r} is not legal: it must be CATALOG.KEY=VALUE, such as "
            f"{next(iter(names))}.type=rest"
        )
    if name not in names:
        raise SettingError(
            f"--catalog-property {shown!r} is not legal: it must begin with a catalog's name and a dot, and there is "
            f"no catalog {name!r}; there is {', '.join(names)} (the first part of a table's name, or --catalog)"
        )
    return name, key, value


def _resolved(text: str, value: str, environment: Mapping[str, str]) -> str:
    if not value.startswith(ENVIRONMENT_PREFIX):
        return value
    variable = value.removeprefix(ENVIRONMENT_PREFIX)
    if variable not in environment:
        raise SettingError(
            f"--catalog-property {text!r} is not legal: there is no {variable} in the environment"
        )
    return environment[variable]


def _set_warehouse(properties: dict[str, str], name: str, warehouse: str) -> None:
    if not warehouse.strip():
        raise SettingError("--warehouse '' is not legal: it must be a folder or a URL")
    if "warehouse" in properties:
        raise SettingError(
            f"--warehouse and --catalog-property {name}.warehouse are the same: give one of them"
        )
    properties["warehouse"] = warehouse.strip()


def _completed(
    name: str, given: Mapping[str, str], settings: Settings, environment: Mapping[str, str]
) -> dict[str, str]:
    if not given:
        return {}
    properties = dict(given)
    if "type" in properties and "catalog-impl" in properties:
        raise SettingError(f"catalog {name!r} has both type and catalog-impl: give one of them")
    if "type" not in properties and "catalog-impl" not in properties:
        _check_type_is_plain(name, properties)
        properties["type"] = "hadoop"
    kind = properties.get("type")
    if kind is not None and kind not in TYPES:
        raise SettingError(f"{name}.type={kind!r} is not legal: it must be one of {', '.join(TYPES)}")
    for key in _NEEDED.get(kind or "", ()):
        if key not in properties:
            remedy = f"--catalog-property {name}.{key}=..." + (
                " or --warehouse" if key == "warehouse" else ""
            )
            raise SettingError(f"catalog {name!r} of type {kind} needs {key}: give {remedy}")
    _check_renames(name, properties)
    warehouse = properties.get("warehouse", "")
    if kind in ("hadoop", "jdbc") and not _SCHEME.match(warehouse):
        properties["warehouse"] = str(Path(warehouse).absolute())
    if _scheme(warehouse) in _S3_SCHEMES:
        properties = _s3_defaults(settings, environment, properties) | properties
    return properties


def _check_type_is_plain(name: str, properties: Mapping[str, str]) -> None:
    """A warehouse alone means a Hadoop catalog; any other kind must be named."""
    if "warehouse" not in properties:
        raise SettingError(
            f"catalog {name!r} has no type: give --warehouse for a Hadoop catalog, or --catalog {name}=TYPE with one "
            f"of {', '.join(TYPES)}"
        )


def _check_renames(name: str, properties: Mapping[str, str]) -> None:
    """A Hadoop catalog commits by renaming a file, which an object store cannot do without overwriting another's."""
    scheme = _scheme(properties.get("warehouse", ""))
    if (
        properties.get("type") == "hadoop"
        and scheme in _OBJECT_STORE_SCHEMES
        and "lock-impl" not in properties
    ):
        raise SettingError(
            f"warehouse {properties['warehouse']!r} is not legal for the Hadoop catalog {name!r}: of two commits at "
            f"once an object store could lose one; give --catalog {name}=jdbc, rest or glue, or a {name}.lock-impl"
        )


def _scheme(warehouse: str) -> str:
    match = _SCHEME.match(warehouse)
    return match[1] if match else ""


def _s3_defaults(
    settings: Settings, environment: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    """The bucket's settings that are set: a warehouse is mostly where the topics are."""
    defaults = {"io-impl": S3_FILE_IO}
    region = settings.s3_region
    if settings.s3_endpoint is not None:
        defaults["s3.endpoint"] = settings.s3_endpoint
        defaults["s3.path-style-access"] = "true" if settings.s3_path_style else "false"
        if region is None and not {"AWS_REGION", "AWS_DEFAULT_REGION"} & environment.keys():
            region = DEFAULT_REGION  # the client insists on one, also where the server does not care
    if region is not None:
        defaults["client.region"] = region
    if not any(key in given for key in _KEYS):
        keys = (settings.s3_access_key, settings.s3_secret_key, settings.s3_session_token)
        defaults |= {key: value for key, value in zip(_KEYS, keys, strict=True) if value is not None}
    if "s3.endpoint" in given and given["s3.endpoint"] != settings.s3_endpoint:
        # another server: the settings do not apply to it
        return {"io-impl": S3_FILE_IO}
    return defaults

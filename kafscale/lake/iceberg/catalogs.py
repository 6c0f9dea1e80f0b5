"""The catalog that `--to` names: a folder, a bucket, a REST server, or one of pyiceberg's own configuration."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafscale.errors import SettingError
from kafscale.settings.broker import Settings

DATABASE_NAME: Final = "catalog.db"
CONFIGURED: Final = "catalog:"
ENVIRONMENT_PREFIX: Final = "env:"
DEFAULT_REGION: Final = "us-east-1"
LEGAL: Final = (
    "a folder, s3://bucket/path with --catalog-property uri=..., the http(s):// address of a REST catalog, or "
    "catalog:NAME for one of pyiceberg's configuration"
)

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)")
_KEYS = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogChoice:
    """A catalog by its name and pyiceberg's own properties of it.

    `folder`: of a catalog that lives in one, which is created with it.
    """

    name: str
    properties: Mapping[str, str]
    folder: Path | None = None


def choose_catalog(
    to: str, name: str, given: Sequence[str], settings: Settings, environment: Mapping[str, str]
) -> CatalogChoice:
    """The catalog of the options: `--to`, `--catalog` and `--catalog-property`.

    A warehouse in S3 is reached with the endpoint, the region and the keys of `settings` unless the properties give
    them. Raises `SettingError`.
    """
    properties = dict(_property(text, environment) for text in given)
    target = to.strip()
    if target.startswith(CONFIGURED):
        return CatalogChoice(name=_checked(target.removeprefix(CONFIGURED), to), properties=properties)
    scheme = match[1].lower() if (match := _SCHEME.fullmatch(target)) else ""
    _checked(name, name)
    if match and not match[2]:
        raise SettingError(f"--to {to!r} is not legal: it must be {LEGAL}")
    if scheme in ("http", "https"):
        return CatalogChoice(name=name, properties={"type": "rest", "uri": target} | properties)
    if scheme == "s3":
        return CatalogChoice(name=name, properties=_in_bucket(target, properties, settings, environment))
    if scheme not in ("", "file") or not target:
        raise SettingError(f"--to {to!r} is not legal: it must be {LEGAL}")
    folder = Path(target.removeprefix("file://")).absolute()
    own = {"type": "sql", "uri": f"sqlite:///{folder / DATABASE_NAME}", "warehouse": f"file://{folder}"}
    return CatalogChoice(
        name=name, properties=own | properties, folder=None if "uri" in properties else folder
    )


def _checked(name: str, shown: str) -> str:
    if not _NAME.fullmatch(name):
        raise SettingError(
            f"catalog name {shown!r} is not legal: it must be of letters, digits, _ and -, such as local"
        )
    return name


def _in_bucket(
    target: str, given: Mapping[str, str], settings: Settings, environment: Mapping[str, str]
) -> dict[str, str]:
    if "uri" not in given:
        raise SettingError(
            f"--to {target!r} needs a catalog, which a bucket cannot be: give its database with --catalog-property "
            "uri=postgresql+psycopg2://... (or sqlite:////path/catalog.db), or the address of a REST catalog with "
            "--to https://..."
        )
    kind = "rest" if given["uri"].startswith("http") else "sql"
    return {"type": kind, "warehouse": target} | _s3_defaults(settings, environment, given) | dict(given)


def _s3_defaults(
    settings: Settings, environment: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    """The bucket's settings that are set: a warehouse is mostly where the topics are."""
    if "s3.endpoint" in given and given["s3.endpoint"] != settings.s3_endpoint:
        return {}  # another server: the settings do not apply to it
    defaults: dict[str, str] = {}
    region = settings.s3_region
    if settings.s3_endpoint is not None:
        defaults["s3.endpoint"] = settings.s3_endpoint
        defaults["s3.force-virtual-addressing"] = "false" if settings.s3_path_style else "true"
        if region is None and not {"AWS_REGION", "AWS_DEFAULT_REGION"} & environment.keys():
            region = DEFAULT_REGION  # the client insists on one, also where the server does not care
    if region is not None:
        defaults["s3.region"] = region
    if not any(key in given for key in _KEYS):
        keys = (settings.s3_access_key, settings.s3_secret_key, settings.s3_session_token)
        defaults |= {key: value for key, value in zip(_KEYS, keys, strict=True) if value is not None}
    return defaults


def _property(text: str, environment: Mapping[str, str]) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (equals and key.strip() and value):
        shown = key if equals else text
        raise SettingError(
            f"--catalog-property {shown!r} is not legal: it must be KEY=VALUE, such as uri=..."
        )
    if not value.startswith(ENVIRONMENT_PREFIX):
        return key.strip(), value
    variable = value.removeprefix(ENVIRONMENT_PREFIX)
    if variable not in environment:
        raise SettingError(
            f"--catalog-property {text!r} is not legal: there is no {variable} in the environment"
        )
    return key.strip(), environment[variable]

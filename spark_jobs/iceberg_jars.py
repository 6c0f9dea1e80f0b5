"""Where Iceberg's jars are named and kept. It needs no package, so that the jars are fetched beside `pip install`."""

import os
from pathlib import Path

from spark_jobs.jar_set import JarSet

_PACKAGE = Path(__file__).resolve().parent


def _tools_folder() -> Path:
    """`.tools` of the checkout; of an installed package, the user's cache."""
    if (_PACKAGE.parent / "pyproject.toml").exists():
        return _PACKAGE.parent / ".tools"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafscale"


ICEBERG = JarSet(_PACKAGE / "pom.xml", _tools_folder() / "spark-jars")

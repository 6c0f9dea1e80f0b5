"""The files of the chart that are made from the code: definitions, the values' schema, dashboards, variables."""

import json
from collections.abc import Callable
from typing import Any, Final

import yaml

from kafscale.operator.schema.definitions import all_definitions
from kafscale.operator.schema.setting_properties import ROWS
from scripts.chart_values import values_schema
from scripts.dashboards.files import dashboard_files

CHART: Final = "deploy/helm/kafscale"

_BEFORE: Final = """\
{{/* Made from the code by `make docs`. */}}
{{- if .Values.crds.install }}
"""
_METADATA: Final = """\
  labels:
    {{- include "kafscale.labels" (list . .Release.Name "definitions") | nindent 4 }}
  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
"""


def definition_template(definition: dict[str, Any]) -> str:
    """A custom resource definition as a template of the chart."""
    head = {name: definition[name] for name in ("apiVersion", "kind", "metadata")}
    rest = {name: value for name, value in definition.items() if name not in head}
    return f"{_BEFORE}{_yaml(head)}{_METADATA}{_yaml(rest)}{{{{- end }}}}\n"


def _yaml(document: object) -> str:
    """The text with everything escaped that the template engine would interpret."""
    text: str = yaml.safe_dump(document, sort_keys=False, width=110, allow_unicode=True)
    return text.replace("{{", '{{ "{{" }}')


def setting_variables() -> str:
    """The environment variable of each name in `config`, as JSON."""
    return json.dumps({name: row.variable for name, row in sorted(ROWS.items())}, indent=2) + "\n"


def written_files() -> dict[str, Callable[[], str]]:
    """Each file's path in the project, and the function that makes its content."""
    found: dict[str, Callable[[], str]] = {
        f"{CHART}/files/settings.json": setting_variables,
        f"{CHART}/values.schema.json": lambda: json.dumps(values_schema(), indent=2) + "\n",
    }
    found |= dashboard_files()
    for definition in all_definitions():
        path = f"{CHART}/templates/crds/{definition['spec']['names']['plural']}.yaml"
        found[path] = lambda definition=definition: definition_template(definition)  # type: ignore[misc]
    return found

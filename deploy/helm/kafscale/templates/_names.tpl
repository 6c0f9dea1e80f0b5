{{/* The chart's name, and the beginning of the names of its objects. */}}
{{- define "kafscale.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "kafscale.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- $name := include "kafscale.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* The same name, where a service's can begin with it. Takes a list: the name, the value to set otherwise. */}}
{{- define "kafscale.serviceName" -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" (index . 0)) }}
{{- fail (printf "the names of services would begin with %q, but they hold a-z, 0-9 and - only and begin with a letter: set %s" (index . 0) (index . 1)) }}
{{- end }}
{{- index . 0 }}
{{- end }}

{{- define "kafscale.operatorName" -}}
{{ include "kafscale.serviceName" (list (include "kafscale.fullname" .) "fullnameOverride") }}-operator
{{- end }}

{{/* The namespaces that the operator looks after, as a JSON list; empty: all. */}}
{{- define "kafscale.watched" -}}
{{- if and .Values.operator.watchAllNamespaces .Values.operator.watchNamespaces }}
{{- fail "operator.watchAllNamespaces and operator.watchNamespaces: set one of them" }}
{{- end }}
{{- .Values.operator.watchAllNamespaces | ternary list (default (list .Release.Namespace) .Values.operator.watchNamespaces) | toJson }}
{{- end }}

{{- define "kafscale.exportName" -}}
{{ include "kafscale.fullname" . }}-export
{{- end }}

{{- define "kafscale.operatorAccount" -}}
{{- default (.Values.operator.serviceAccount.create | ternary (include "kafscale.operatorName" .) "default") .Values.operator.serviceAccount.name }}
{{- end }}

{{- define "kafscale.exportAccount" -}}
{{- default (.Values.lakeExport.serviceAccount.create | ternary (include "kafscale.exportName" .) "default") .Values.lakeExport.serviceAccount.name }}
{{- end }}

{{/* The labels that never change, by which pods are selected. Takes a list: the root, the instance, the component. */}}
{{- define "kafscale.selector" -}}
app.kubernetes.io/name: kafscale
app.kubernetes.io/instance: {{ index . 1 | quote }}
app.kubernetes.io/component: {{ index . 2 | quote }}
{{- end }}

{{/* All labels of an object. Takes the same, and perhaps a dict of further ones, which go before commonLabels. */}}
{{- define "kafscale.labels" -}}
{{- $root := index . 0 -}}
{{- $more := deepCopy $root.Values.commonLabels -}}
{{- if gt (len .) 3 }}{{ $more = mergeOverwrite $more (index . 3) }}{{ end -}}
{{ include "kafscale.selector" . }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $more }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* An image's name. Takes a list: the root, the section with repository, tag and digest. */}}
{{- define "kafscale.image" -}}
{{- $root := index . 0 }}{{ $image := index . 1 -}}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $image.repository (default $root.Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{/* Contexts as the Pod Security standard "restricted" asks. */}}
{{- define "kafscale.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "kafscale.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end }}

{{/*
The section `security` of a direct cluster with defaults filled in, as JSON. Takes a list: the root, the spec. As
kafscale/operator/security_spec.py; what needs the operator (clients' certificates) is not in the values' schema.
*/}}
{{- define "kafscale.directSecurity" -}}
{{- $root := index . 0 }}{{ $spec := index . 1 }}
{{- $security := deepCopy (default dict $spec.security) }}
{{- $name := include "kafscale.directName" $root }}
{{- if not $security.protocol }}
{{- with lookup "apps/v1" "StatefulSet" $root.Release.Namespace (printf "%s-broker" $name) }}
{{- if or (contains "KAFSCALE_BROKER_ADDR" (toJson .spec.template)) (contains "KAFSCALE_ALLOW_PLAINTEXT" (toJson .spec.template)) }}
{{- fail "directCluster.spec.security.protocol is not given, and the brokers serve plaintext: set it to PLAINTEXT to go on like this, or to SASL_SSL, the default of new clusters, once clients are ready for it" }}
{{- end }}
{{- end }}
{{- end }}
{{- $_ := set $security "protocol" (default "SASL_SSL" $security.protocol) }}
{{- $isPlain := eq $security.protocol "PLAINTEXT" }}
{{- if and $isPlain (not $security.transition) (or $security.certificateSecret $security.adminPasswordSecret (eq (default "" $security.authorizer) "acl")) }}
{{- fail "directCluster.spec.security: certificateSecret, adminPasswordSecret and authorizer acl are not for the protocol PLAINTEXT alone" }}
{{- end }}
{{- $_ := set $security "authorizer" (default ($isPlain | ternary "none" "acl") $security.authorizer) }}
{{- $protocols := list $security.protocol }}
{{- with $security.transition }}
{{- if not $spec.security.protocol }}
{{- fail "directCluster.spec.security: transition needs protocol: from which, or to which protocol clients move" }}
{{- end }}
{{- $_ := set . "port" (int (default 9096 .port)) }}
{{- if has .port (list 9092 9093) }}
{{- fail "directCluster.spec.security.transition.port must not be 9092 or 9093: brokers listen there already" }}
{{- end }}
{{- if and (hasKey $spec.brokers "external") (eq .port (int $spec.brokers.external.port)) }}
{{- fail (printf "directCluster.spec.security.transition.port=%d is brokers.external.port, too: give it another" .port) }}
{{- end }}
{{- $protocols = append $protocols .protocol }}
{{- end }}
{{- $_ := set $security "isPlain" $isPlain }}
{{- $_ := set $security "takesPlaintext" (has "PLAINTEXT" $protocols) }}
{{- $_ := set $security "isTls" (has "SASL_SSL" $protocols) }}
{{- $_ := set $security "hasAdmin" (gt (without $protocols "PLAINTEXT" | len) 0) }}
{{- $_ := set $security "admin" (printf "%s-admin" $name) }}
{{- toJson $security }}
{{- end }}

{{/* The variables of the listeners, as JSON. Takes a list: the root, the spec, the variables of `config`. */}}
{{- define "kafscale.listenerEnvironment" -}}
{{- $spec := index . 1 }}{{ $config := index . 2 }}
{{- $security := $spec.security }}{{ $external := default dict $spec.brokers.external }}
{{- $found := dict }}
{{- $internal := $security.isPlain | ternary "PLAINTEXT" "INTERNAL" }}
{{- $listeners := list (printf "%s://:9092" $internal) }}
{{- $protocols := list (printf "%s:%s" $internal $security.protocol) }}
{{- if hasKey $spec.brokers "external" }}
{{- $listeners = append $listeners (printf "EXTERNAL://:%d" (int $external.port)) }}
{{- $protocols = append $protocols (printf "EXTERNAL:%s" $security.protocol) }}
{{- end }}
{{- with $security.transition }}
{{- $listeners = append $listeners (printf "TRANSITION://:%d" (int .port)) }}
{{- $protocols = append $protocols (printf "TRANSITION:%s" .protocol) }}
{{- end }}
{{- $_ := set $found "KAFSCALE_LISTENERS" (join "," $listeners) }}
{{- $_ := set $found "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP" (join "," $protocols) }}
{{- if $security.takesPlaintext }}
{{- $_ := set $found "KAFSCALE_ALLOW_PLAINTEXT" "true" }}
{{- end }}
{{- if $security.hasAdmin }}
{{- $_ := set $found "KAFSCALE_AUTHORIZER" $security.authorizer }}
{{- $_ := set $found "KAFSCALE_SUPER_USERS" (prepend (default list $security.superUsers) (printf "User:%s" $security.admin) | join ";") }}
{{- if not (hasKey $config "KAFSCALE_SASL_ENABLED_MECHANISMS") }}
{{- $_ := set $found "KAFSCALE_SASL_ENABLED_MECHANISMS" "SCRAM-SHA-512,SCRAM-SHA-256" }}
{{- end }}
{{- if $security.isTls }}
{{- $_ := set $found "KAFSCALE_SSL_CERTIFICATE_FILE" "/etc/kafscale/tls/tls.crt" }}
{{- $_ := set $found "KAFSCALE_SSL_KEY_FILE" "/etc/kafscale/tls/tls.key" }}
{{- end }}
{{- end }}
{{- if $security.metricsTokenSecret }}
{{- $_ := set $found "KAFSCALE_METRICS_TOKEN_FILE" "/etc/kafscale/metrics-token/token" }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{/* The listeners' variables that differ between brokers. Takes the cluster. */}}
{{- define "kafscale.listenerVariables" -}}
{{- $external := default dict .spec.brokers.external }}
{{- $peer := printf "$(POD_NAME).%s-brokers.%s.svc" .name .namespace }}
{{- $host := default "" $external.hostTemplate | replace "{id}" "$(KAFSCALE_BROKER_ID)" }}
{{- $advertised := list (printf "%s://%s:9092" (.spec.security.isPlain | ternary "PLAINTEXT" "INTERNAL") $peer) }}
{{- with .spec.security.transition }}
{{- $advertised = append $advertised (printf "TRANSITION://%s:%d" $peer (int .port)) }}
{{- end }}
{{- if and $host (not .asksAddress) }}
{{- $advertised = append $advertised (printf "EXTERNAL://%s:%d" $host (int $external.port)) }}
{{- end -}}
- name: KAFSCALE_ADVERTISED_LISTENERS
  value: {{ join "," $advertised | quote }}
{{- if and $host .asksAddress }}
- name: EXTERNAL_LISTENER_HOST
  value: {{ $host | quote }}
{{- end }}
{{- end }}

{{/* The hosts in the brokers' certificate, as a JSON list; as kafscale/operator/clusters/certificates.py. Takes the cluster. */}}
{{- define "kafscale.brokerHosts" -}}
{{- $cluster := . }}{{ $hosts := list }}
{{- range $service := list (printf "%s-bootstrap" .name) (printf "*.%s-brokers" .name) }}
{{- $short := printf "%s.%s" $service $cluster.namespace }}
{{- $hosts = concat $hosts (list $short (printf "%s.svc" $short) (printf "%s.svc.cluster.local" $short)) }}
{{- end }}
{{- with .spec.brokers.external }}
{{- with .bootstrapHost }}
{{- $hosts = append $hosts . }}
{{- end }}
{{- with .hostTemplate }}
{{- $template := . }}
{{- /* In steps of 16, so that scaling rarely needs a new certificate. */}}
{{- range $id := until (int (mul 16 (div (add (max 1 (int $cluster.brokerCount)) 15) 16))) }}
{{- $hosts = append $hosts (replace "{id}" (toString $id) $template) }}
{{- end }}
{{- end }}
{{- end }}
{{- append (uniq $hosts) "localhost" | toJson }}
{{- end }}

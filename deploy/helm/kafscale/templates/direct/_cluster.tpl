{{/*
The direct cluster as JSON: name, namespace, spec with defaults filled in, the settings as environment, whether brokers
have to ask Kubernetes for their address outside (asksAddress), about their nodes (readsNodes) or anything (needsApi), and
how many there may be at most (brokerCount). As kafscale/operator/cluster_spec.py reads a KafscaleCluster, with what it refuses.
*/}}
{{- define "kafscale.direct" -}}
{{- $spec := deepCopy .Values.directCluster.spec }}
{{- $brokers := required "directCluster.spec.brokers is missing: give replicas or autoscaling" $spec.brokers }}
{{- if eq (hasKey $brokers "replicas") (hasKey $brokers "autoscaling") }}
{{- fail "directCluster.spec.brokers: exactly one of replicas and autoscaling must be given" }}
{{- end }}
{{- with $brokers.autoscaling }}
{{- $_ := set . "minReplicas" (default 3 .minReplicas) }}
{{- $_ := set . "targetCPUUtilizationPercentage" (default 70 .targetCPUUtilizationPercentage) }}
{{- if lt (int .maxReplicas) (int .minReplicas) }}
{{- fail (printf "directCluster.spec.brokers.autoscaling: maxReplicas (%d) must be at least minReplicas (%d)" (int .maxReplicas) (int .minReplicas)) }}
{{- end }}
{{- end }}
{{- if hasKey $brokers "rack" }}
{{- $_ := set $brokers.rack "topologyKey" (default "topology.kubernetes.io/zone" $brokers.rack.topologyKey) }}
{{- end }}
{{- if hasKey $brokers "external" }}
{{- $_ := set $brokers.external "type" (default "LoadBalancer" $brokers.external.type) }}
{{- $_ := set $brokers.external "port" (default 9094 $brokers.external.port) }}
{{- if has (int $brokers.external.port) (list 9092 9093) }}
{{- fail "directCluster.spec.brokers.external.port must not be 9092 or 9093: brokers listen there already" }}
{{- end }}
{{- with $brokers.external.hostTemplate }}
{{- if not (contains "{id}" .) }}
{{- fail (printf "directCluster.spec.brokers.external.hostTemplate=%q is the same for every broker: it must hold {id}" .) }}
{{- end }}
{{- end }}
{{- end }}
{{- $_ := set $brokers "terminationGracePeriodSeconds" (default 60 $brokers.terminationGracePeriodSeconds) }}
{{- $grace := int $brokers.terminationGracePeriodSeconds }}
{{- if gt (int (dig "config" "shutdownTimeoutMs" 0 $spec)) (int (mul (sub $grace 2) 1000)) }}
{{- fail (printf "directCluster.spec.config.shutdownTimeoutMs must be at least 2 seconds shorter than brokers.terminationGracePeriodSeconds (%d), after which brokers are killed" $grace) }}
{{- end }}
{{- $_ := required "directCluster.spec.s3 is missing: say which bucket holds the records" $spec.s3 }}
{{- $_ := required "directCluster.spec.s3.bucket is missing: say which bucket holds the records" $spec.s3.bucket }}
{{- $_ := required "directCluster.spec.etcd is missing: say where etcd is" $spec.etcd }}
{{- $_ := required "directCluster.spec.etcd.endpoints is missing: say where etcd is" $spec.etcd.endpoints }}
{{- $_ := set $spec "security" (include "kafscale.directSecurity" (list . $spec) | fromJson) }}
{{- $external := default dict $brokers.external }}
{{- $asksAddress := and (hasKey $brokers "external") (or (eq (default "" $external.type) "NodePort") (not $external.hostTemplate)) }}
{{- $needsApi := or (hasKey $brokers "rack") $asksAddress }}
{{- $asksHost := and (eq (default "" $external.type) "NodePort") (not $external.hostTemplate) }}
{{- $readsNodes := or (hasKey $brokers "rack") $asksHost }}
{{- $count := int (hasKey $brokers "replicas" | ternary $brokers.replicas (dig "autoscaling" "maxReplicas" 0 $brokers)) }}
{{- $cluster := dict "name" (include "kafscale.directName" .) "namespace" .Release.Namespace "spec" $spec }}
{{- $_ := merge $cluster (dict "asksAddress" $asksAddress "needsApi" $needsApi "readsNodes" $readsNodes "brokerCount" $count) }}
{{- $_ := set $cluster "environment" (include "kafscale.directEnvironment" (list . $spec) | fromJson) }}
{{- toJson $cluster }}
{{- end }}

{{- define "kafscale.directName" -}}
{{- $name := default .Release.Name .Values.directCluster.name | trunc 40 | trimSuffix "-" }}
{{- include "kafscale.serviceName" (list $name "directCluster.name") }}
{{- end }}

{{/* The settings that all brokers share, as a JSON object. Takes a list: the root, the spec. */}}
{{- define "kafscale.directEnvironment" -}}
{{- $root := index . 0 }}{{ $spec := index . 1 }}
{{- $environment := dict }}
{{- $variables := $root.Files.Get "files/settings.json" | fromJson }}
{{- range $name, $value := default dict $spec.config }}
{{- $_ := set $environment (index $variables $name) (kindIs "string" $value | ternary $value (toJson $value)) }}
{{- end }}
{{- $environment = mergeOverwrite $environment (include "kafscale.listenerEnvironment" (list $root $spec $environment) | fromJson) }}
{{- $_ := set $environment "KAFSCALE_METRICS_ADDR" ":9093" }}
{{- range $prefix, $bucket := dict "KAFSCALE_S3" $spec.s3 "KAFSCALE_S3_READ" (default dict $spec.s3.readReplica) }}
{{- range $field, $ending := dict "bucket" "BUCKET" "region" "REGION" "endpoint" "ENDPOINT" "pathStyle" "PATH_STYLE" "kmsKeyArn" "KMS_ARN" }}
{{- if hasKey $bucket $field }}
{{- $_ := set $environment (printf "%s_%s" $prefix $ending) (toString (index $bucket $field)) }}
{{- end }}
{{- end }}
{{- end }}
{{- $_ := set $environment "KAFSCALE_S3_NAMESPACE" (default "default" $spec.s3.namespace) }}
{{- $_ := set $environment "KAFSCALE_ETCD_ENDPOINTS" (join "," $spec.etcd.endpoints) }}
{{- with $spec.etcd.prefix }}
{{- $_ := set $environment "KAFSCALE_ETCD_PREFIX" . }}
{{- end }}
{{- if $spec.etcd.tlsSecret }}
{{- $_ := set $environment "KAFSCALE_ETCD_CA" "/etc/kafscale/etcd-tls/ca.crt" }}
{{- if $spec.etcd.tlsClientCertificate }}
{{- $_ := set $environment "KAFSCALE_ETCD_CERT" "/etc/kafscale/etcd-tls/tls.crt" }}
{{- $_ := set $environment "KAFSCALE_ETCD_KEY" "/etc/kafscale/etcd-tls/tls.key" }}
{{- end }}
{{- end }}
{{- toJson $environment }}
{{- end }}

{{/* The pod of a broker. Takes a list: the root, the cluster. */}}
{{- define "kafscale.brokerPod" -}}
{{- $root := index . 0 }}{{ $cluster := index . 1 }}
{{- $spec := $cluster.spec }}{{ $brokers := $spec.brokers }}
{{- $selector := include "kafscale.selector" (list $root $cluster.name "broker") -}}
serviceAccountName: {{ default (printf "%s-broker" $cluster.name) $brokers.serviceAccountName | quote }}
automountServiceAccountToken: {{ $cluster.needsApi }}
terminationGracePeriodSeconds: {{ int $brokers.terminationGracePeriodSeconds }}
enableServiceLinks: false
{{- with default $root.Values.image.pullSecrets $spec.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with $brokers.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $brokers.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $brokers.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
securityContext:
  {{- include "kafscale.podSecurity" $root | nindent 2 }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ dig "rack" "topologyKey" "topology.kubernetes.io/zone" $brokers | quote }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- $selector | nindent 8 }}
affinity:
  {{- if hasKey $brokers "affinity" }}
  {{- toYaml $brokers.affinity | nindent 2 }}
  {{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- $selector | nindent 14 }}
  {{- end }}
containers:
  - name: broker
    image: {{ default (include "kafscale.image" (list $root $root.Values.image)) $spec.image | quote }}
    imagePullPolicy: {{ default $root.Values.image.pullPolicy $spec.imagePullPolicy | quote }}
    args: [{{ $cluster.needsApi | ternary "pod" "serve" }}]
    env:
      {{- range $name, $value := $cluster.environment }}
      - name: {{ $name }}
        value: {{ $value | replace "$" "$$" | quote }}
      {{- end }}
      {{- include "kafscale.brokerVariables" $cluster | nindent 6 }}
    ports:
      - name: kafka
        containerPort: 9092
      {{- with $brokers.external }}
      - name: external
        containerPort: {{ int .port }}
      {{- end }}
      {{- with $spec.security.transition }}
      - name: transition
        containerPort: {{ int .port }}
      {{- end }}
      - name: metrics
        containerPort: 9093
    startupProbe:
      httpGet: {path: /healthz, port: metrics}
      periodSeconds: 2
      timeoutSeconds: 2
      failureThreshold: 150
    livenessProbe:
      httpGet: {path: /healthz, port: metrics}
      periodSeconds: 10
      timeoutSeconds: 2
      failureThreshold: 6
    readinessProbe:
      httpGet: {path: /readyz, port: metrics}
      periodSeconds: 3
      timeoutSeconds: 2
      failureThreshold: 2
    lifecycle:
      preStop:
        # Before the broker gets SIGTERM, so that no new client is sent to it.
        sleep:
          seconds: 2
    {{- with $brokers.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "kafscale.containerSecurity" $root | nindent 6 }}
    volumeMounts:
      - name: tmp
        mountPath: /tmp
      {{- if $spec.etcd.tlsSecret }}
      - name: etcd-tls
        mountPath: /etc/kafscale/etcd-tls
        readOnly: true
      {{- end }}
      {{- if $spec.security.metricsTokenSecret }}
      - name: metrics-token
        mountPath: /etc/kafscale/metrics-token
        readOnly: true
      {{- end }}
      {{- if $spec.security.isTls }}
      - name: tls
        mountPath: /etc/kafscale/tls
        readOnly: true
      {{- end }}
volumes:
  - name: tmp
    emptyDir:
      sizeLimit: 64Mi
  {{- with $spec.etcd.tlsSecret }}
  - name: etcd-tls
    secret:
      secretName: {{ . | quote }}
  {{- end }}
  {{- with $spec.security.metricsTokenSecret }}
  - name: metrics-token
    secret:
      secretName: {{ . | quote }}
  {{- end }}
  {{- if $spec.security.isTls }}
  - name: tls
    secret:
      secretName: {{ default (printf "%s-broker-tls" $cluster.name) $spec.security.certificateSecret | quote }}
  {{- end }}
{{- end }}

{{/* What differs between brokers, and what is secret. Takes the cluster. */}}
{{- define "kafscale.brokerVariables" -}}
{{- $brokers := .spec.brokers -}}
- name: KAFSCALE_BROKER_ID
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{ include "kafscale.listenerVariables" . | trim }}
{{- if not (hasKey .environment "KAFSCALE_SHUTDOWN_TIMEOUT_MS") }}
{{- /* The rest of the grace period is for preStop, and to answer and to end. */}}
- name: KAFSCALE_SHUTDOWN_TIMEOUT_MS
  value: {{ max 1 (sub (int $brokers.terminationGracePeriodSeconds) 7) | mul 1000 | quote }}
{{- end }}
{{- if .needsApi }}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- with $brokers.rack }}
- name: RACK_LABEL
  value: {{ .topologyKey | quote }}
{{- end }}
{{- if .asksAddress }}
- name: EXTERNAL_SERVICE
  value: {{ .name }}-broker-$(KAFSCALE_BROKER_ID)-external
{{- end }}
{{- end }}
{{- with include "kafscale.secretVariables" (dict "s3" .spec.s3.credentialsSecret "etcd" .spec.etcd.credentialsSecret) }}
{{ trim . }}
{{- end }}
{{- end }}

{{/* Who the process is to the stores. Takes a dict of Secrets' names: s3, etcd. */}}
{{- define "kafscale.secretVariables" -}}
{{ with .s3 -}}
- name: KAFSCALE_S3_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: AWS_ACCESS_KEY_ID}}
- name: KAFSCALE_S3_SECRET_KEY
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: AWS_SECRET_ACCESS_KEY}}
- name: KAFSCALE_S3_SESSION_TOKEN
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: AWS_SESSION_TOKEN, optional: true}}
{{- end }}
{{- with .etcd }}
- name: KAFSCALE_ETCD_USERNAME
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: username}}
- name: KAFSCALE_ETCD_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: password}}
{{- end }}
{{- end }}

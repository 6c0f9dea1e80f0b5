{{/* The cluster whose topics are exported. */}}
{{- define "kafscale.exportCluster" -}}
{{- $direct := .Values.directCluster.enabled | ternary (include "kafscale.directName" .) "" }}
{{- required "lakeExport.cluster is missing: name the KafscaleCluster whose topics are exported" (default $direct .Values.lakeExport.cluster) }}
{{- end }}

{{/* The pod of the lake export. */}}
{{- define "kafscale.exportPod" -}}
{{- $export := .Values.lakeExport }}
{{- $isDirect := and .Values.directCluster.enabled (eq (include "kafscale.exportCluster" .) (include "kafscale.directName" .)) }}
{{- $direct := $isDirect | ternary .Values.directCluster.spec dict }}
{{- $settings := default (printf "%s-broker-settings" (include "kafscale.exportCluster" .)) $export.settingsConfigMap }}
{{- $s3 := default (dig "s3" "credentialsSecret" "" $direct) $export.s3CredentialsSecret }}
{{- $etcd := default (dig "etcd" "credentialsSecret" "" $direct) $export.etcdCredentialsSecret }}
{{- $tls := default (dig "etcd" "tlsSecret" "" $direct) $export.etcdTlsSecret -}}
serviceAccountName: {{ include "kafscale.exportAccount" . | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
restartPolicy: Never
# SIGTERM lets the export finish the commit in progress.
terminationGracePeriodSeconds: {{ int $export.terminationGracePeriodSeconds }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with $export.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $export.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "kafscale.podSecurity" . | nindent 2 }}
volumes:
  - name: scratch
    emptyDir:
      sizeLimit: {{ $export.scratchSize | quote }}
  {{- with $tls }}
  - name: etcd-tls
    secret:
      secretName: {{ . | quote }}
      defaultMode: 0440
  {{- end }}
containers:
  - name: export
    image: {{ include "kafscale.image" (list . $export.image) | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy | quote }}
    {{- /* As module and not by spark-submit, which ends at once on SIGTERM. */}}
    command: [python, -m, spark_jobs.export]
    args:
      - --conf=spark.driver.memory={{ $export.driverMemory }}
      - --conf=spark.driver.host=127.0.0.1
      - --conf=spark.driver.bindAddress=127.0.0.1
      {{- toYaml (required "lakeExport.args is missing: which topics go into which tables (docs/lake-export.md)" (empty $export.args | ternary nil $export.args)) | nindent 6 }}
    envFrom:
      - configMapRef:
          name: {{ $settings | quote }}
      {{- range $export.envSecrets }}
      - secretRef:
          name: {{ . | quote }}
      {{- end }}
    env:
      - name: HOME
        value: /tmp
      - name: SPARK_LOCAL_DIRS
        value: /tmp/spark
      {{- with include "kafscale.secretVariables" (dict "s3" $s3 "etcd" $etcd) }}
      {{- trim . | nindent 6 }}
      {{- end }}
      {{- with $export.env }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with $export.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "kafscale.containerSecurity" . | nindent 6 }}
    volumeMounts:
      - name: scratch
        mountPath: /tmp
      {{- if $tls }}
      - name: etcd-tls
        mountPath: /etc/kafscale/etcd-tls
        readOnly: true
      {{- end }}
{{- end }}

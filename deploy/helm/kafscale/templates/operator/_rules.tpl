{{/* What a broker may ask about nodes. */}}
{{- define "kafscale.nodeReaderRules" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get]
{{- end }}

{{/* What the operator does in the namespaces that it looks after. */}}
{{- define "kafscale.operatorRules" -}}
# The custom resources: read, and given the finalizer.
- apiGroups: [kafscale.io]
  resources: [kafscaleclusters, kafscaletopics, kafscaleusers, kafscaleexports]
  verbs: [get, list, watch, patch]
# Clusters' administrators.
- apiGroups: [kafscale.io]
  resources: [kafscaleusers]
  verbs: [create, delete]
- apiGroups: [kafscale.io]
  resources: [kafscaleclusters/status]
  verbs: [patch]
- apiGroups: [kafscale.io]
  resources: [kafscaletopics/status, kafscaleusers/status, kafscaleexports/status]
  verbs: [update]
# Who owns an object may keep its owner from going first (where Kubernetes asks for that right).
- apiGroups: [kafscale.io]
  resources: [kafscaleclusters/finalizers, kafscaleexports/finalizers]
  verbs: [update]
# What clusters consist of.
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
# What exports consist of.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, create, patch, delete]
- apiGroups: [batch]
  resources: [cronjobs]
  verbs: [get, create, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps, serviceaccounts]
  verbs: [get, list, create, patch, delete]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, create, patch, delete]
# Brokers that have to find out their address may look at their own services; nothing that the operator may not do.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, create, patch, delete]
# Which pods are ready, and why not.
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
# The credentials that clusters name, for topics and backups.
- apiGroups: [""]
  resources: [secrets]
  {{- with .Values.operator.rbac.secretNames }}
  resourceNames: {{ toJson . }}
  {{- end }}
  verbs: [get, patch]
# Certificates of clusters and managed etcds, passwords and certificates of users.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
# What it tells.
- apiGroups: [""]
  resources: [events]
  verbs: [get, create, patch]
{{- end }}

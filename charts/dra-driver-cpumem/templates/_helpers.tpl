{{- define "cpumem.name" -}}
{{- default .Chart.Name .Values.nameOverride -}}
{{- end -}}

{{- define "cpumem.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains (include "cpumem.name" .) .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "cpumem.name" .) | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The pods mount host directories, which Pod Security must allow for the whole namespace. */}}
{{- define "cpumem.namespace" -}}
{{- $namespace := default .Release.Namespace .Values.namespaceOverride -}}
{{- if eq $namespace "default" -}}
{{- fail "the namespace default is refused, because the daemons need the Pod Security level privileged for it: install with --namespace cpumem-system --create-namespace, or set namespaceOverride" -}}
{{- end -}}
{{- $namespace -}}
{{- end -}}

{{/* Labels of objects. Pods get selectorLabels only: a chart version in them would roll both daemons. */}}
{{- define "cpumem.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ include "cpumem.selectorLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "cpumem.selectorLabels" -}}
app.kubernetes.io/name: {{ include "cpumem.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* The identities. The admission policy, the bindings and the DaemonSets all take them from here. */}}
{{- define "cpumem.frontend.serviceAccountName" -}}
{{ default (printf "%s-frontend" (include "cpumem.fullname" .)) .Values.frontend.serviceAccount.name }}
{{- end -}}

{{- define "cpumem.actuator.serviceAccountName" -}}
{{ default (printf "%s-actuator" (include "cpumem.fullname" .)) .Values.actuator.serviceAccount.name }}
{{- end -}}

{{- define "cpumem.image" -}}
{{- if not .image.repository -}}
{{- fail (printf "%s.image.repository is required: there are no published images. %s" .daemon
  "Build and push them with `make release REPOSITORY=...` and name them (docs/getting-started/install.md)") -}}
{{- end -}}
{{ .image.repository }}{{ if .image.digest }}@{{ .image.digest }}{{ else }}:{{ default .root.Chart.AppVersion .image.tag }}{{ end }}
{{- end -}}

{{/* Root, because the host's files belong to it; nothing else of root's power. */}}
{{- define "cpumem.securityContext" -}}
runAsUser: 0
runAsGroup: 0
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  {{- with .capabilities }}
  add: {{ toJson . }}
  {{- end }}
seccompProfile:
  type: RuntimeDefault
{{- with .seLinuxOptions }}
seLinuxOptions:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Variables of a daemon: the number of Go threads at work, the memory above which Go collects garbage all the
time, and extraEnv, which may have other values. Without these Go takes the number of the node's CPUs, and lets the heap
grow to twice of what is in use: above the container's limit the kernel would kill the daemon. */}}
{{- define "cpumem.env" -}}
{{- $names := list }}
{{- range .extra }}{{ $names = append $names .name }}{{ end }}
{{- if not (has "GOMAXPROCS" $names) -}}
- {name: GOMAXPROCS, value: {{ .threads | quote }}}
{{ end }}
{{- if not (has "GOMEMLIMIT" $names) -}}
- {name: GOMEMLIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory}}}
{{ end }}
{{- with .extra }}
{{- toYaml . }}
{{- end }}
{{- end -}}

{{- define "cpumem.probes" -}}
livenessProbe:
  httpGet: {path: /healthz, port: {{ . }}}
  initialDelaySeconds: 10
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: {{ . }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

{{/* Of surge and unavailability the API takes one. */}}
{{- define "cpumem.updateStrategy" -}}
type: {{ .updateStrategy }}
{{- if eq .updateStrategy "RollingUpdate" }}
rollingUpdate: {maxSurge: {{ ternary .maxSurge 0 (empty .maxUnavailable) }}, maxUnavailable: {{ .maxUnavailable }}}
{{- end }}
{{- end -}}

{{/* The context of the containers of helm's hooks. OpenShift gives each namespace its own users. */}}
{{- define "cpumem.hookSecurityContext" -}}
{{- if not .Values.openshift.createSCC -}}
runAsUser: 65534
runAsGroup: 65534
{{ end -}}
runAsNonRoot: true
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Pod settings that both daemons have. */}}
{{- define "cpumem.podSettings" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .daemon.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .daemon.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .daemon.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "cpumem.frontend.container" -}}
- name: frontend
  image: {{ include "cpumem.image" (dict "root" . "daemon" "frontend" "image" .Values.frontend.image) | quote }}
  imagePullPolicy: {{ .Values.frontend.image.pullPolicy }}
  args:
    - --config=/etc/cpumem/config.yaml
    - --node-name=$(NODE_NAME)
    - --pod-uid=$(POD_UID)
    - --metrics-address=:{{ .Values.frontend.metricsPort }}
    {{- if .Values.metrics.enabled }}
    - --metrics
    {{- end }}
    - --log-level={{ .Values.frontend.logLevel }}
    {{- with .Values.frontend.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  env:
    - name: NODE_NAME
      valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
    # Names the sockets of this instance, so that old and new can overlap.
    - name: POD_UID
      valueFrom: {fieldRef: {fieldPath: metadata.uid}}
    # Frontends of two releases do not share a node. A variable and no flag:
    # older images refuse flags that they do not know.
    - {name: RELEASE, value: {{ printf "%s/%s" (include "cpumem.namespace" .) (include "cpumem.fullname" .) }}}
    {{- include "cpumem.env" (dict "threads" 4 "extra" .Values.frontend.extraEnv) | trim | nindent 4 }}
  ports:
    - {name: frontend, containerPort: {{ .Values.frontend.metricsPort }}, protocol: TCP}
  {{- include "cpumem.probes" "frontend" | nindent 2 }}
  {{- with .Values.frontend.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "cpumem.securityContext" .Values.frontend | nindent 4 }}
  volumeMounts:
    - {name: config, mountPath: /etc/cpumem, readOnly: true}
    - {name: api-token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
    - {name: cdi, mountPath: {{ .Values.config.cdiDir }}}
    # Same paths as on the host: kubelet gets the paths of the sockets.
    - {name: plugin, mountPath: {{ .Values.config.kubeletRootDir }}/plugins/dra.cpumem}
    - {name: registry, mountPath: {{ .Values.config.kubeletRootDir }}/plugins_registry}
    {{- if .Values.frontend.checkKubeletPolicies }}
    {{- range list "cpu_manager_state" "memory_manager_state" }}
    - {name: {{ . | replace "_" "-" }}, mountPath: {{ $.Values.config.kubeletRootDir }}/{{ . }}, readOnly: true}
    {{- end }}
    {{- end }}
    {{- with .Values.config.kubeletConfigFile }}
    - {name: kubelet-config, mountPath: {{ . }}, readOnly: true}
    {{- end }}
    {{- if ne .Values.config.sysfsRoot "/sys" }}
    # Recursive, or the cgroup file system below would be writable.
    - {name: sys, mountPath: {{ .Values.config.sysfsRoot }}, readOnly: true, recursiveReadOnly: IfPossible}
    {{- end }}
    {{- with .Values.frontend.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "cpumem.frontend.volumes" -}}
- name: config
  configMap:
    name: {{ include "cpumem.fullname" . }}-config
# The token is a volume of its own and not automounted, so that in the sidecar
# layout the other container has none.
- name: api-token
  projected:
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - configMap:
          name: kube-root-ca.crt
          items: [{key: ca.crt, path: ca.crt}]
      - downwardAPI:
          items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
- name: plugin
  hostPath: {path: {{ .Values.config.kubeletRootDir }}/plugins/dra.cpumem, type: DirectoryOrCreate}
- name: registry
  hostPath: {path: {{ .Values.config.kubeletRootDir }}/plugins_registry, type: Directory}
{{- if .Values.frontend.checkKubeletPolicies }}
# The two files and not kubelet's directory: that holds the tokens of all pods.
{{- range list "cpu_manager_state" "memory_manager_state" }}
- name: {{ . | replace "_" "-" }}
  hostPath: {path: {{ $.Values.config.kubeletRootDir }}/{{ . }}, type: File}
{{- end }}
{{- end }}
{{- with .Values.config.kubeletConfigFile }}
- name: kubelet-config
  hostPath: {path: {{ . }}, type: File}
{{- end }}
{{- if ne .Values.config.sysfsRoot "/sys" }}
- name: sys
  hostPath: {path: /sys, type: Directory}
{{- end }}
{{- with .Values.frontend.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Both daemons have the CDI directory; a pod lists the volume once. */}}
{{- define "cpumem.cdiVolume" -}}
- name: cdi
  hostPath: {path: {{ .Values.config.cdiDir }}, type: DirectoryOrCreate}
{{- end -}}

{{/*
The daemon refuses keys that it does not know. So the file leaves out each value
that is the daemon's default: an older image, pinned or not replaced yet, takes
the file of a newer chart while no newer key is set. No other value is left out.
*/}}
{{- define "cpumem.configFile" -}}
{{- $file := deepCopy .Values.config -}}
{{- /* Helm's --set makes a number of "4", and text of 0.9. */ -}}
{{- range list "reservedCPUs" "managedCPUs" -}}{{- $_ := set $file . (toString (index $file .)) -}}{{- end -}}
{{- with $file.memoryQoS.throttlingFactor -}}{{- $_ := set $file.memoryQoS "throttlingFactor" (float64 .) -}}{{- end -}}
{{- $defaults := .Files.Get "files/config-defaults.yaml" | fromYaml -}}
{{- range $key, $value := deepCopy $file -}}
{{- $default := index $defaults $key -}}
{{- if kindIs "map" $default -}}
{{- range $sub, $of := $value -}}
{{- if eq (toJson $of) (toJson (index $default $sub)) -}}{{- $_ := unset (index $file $key) $sub -}}{{- end -}}
{{- end -}}
{{- if empty (index $file $key) -}}{{- $_ := unset $file $key -}}{{- end -}}
{{- else if eq (toJson $value) (toJson $default) -}}{{- $_ := unset $file $key -}}
{{- else if and (kindIs "map" $value) (empty $value) -}}{{- $_ := unset $file $key -}}
{{- end -}}
{{- end -}}
{{ toYaml $file }}
{{- end -}}

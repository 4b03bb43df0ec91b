{{- define "cpumem.actuator.container" -}}
- name: actuator
  image: {{ include "cpumem.image" (dict "root" . "daemon" "actuator" "image" .Values.actuator.image) | quote }}
  imagePullPolicy: {{ .Values.actuator.image.pullPolicy }}
  args:
    - --cdi-dir={{ .Values.config.cdiDir }}
    - --nri-socket={{ .Values.actuator.nriSocket }}
    - --cgroup-root=/host/cgroup
    {{- /* The actuator's default; older ones do not know the flag. */}}
    {{- if ne .Values.actuator.systemBus "/run/dbus/system_bus_socket" }}
    - --system-bus={{ .Values.actuator.systemBus }}
    {{- end }}
    - --refresh-interval={{ .Values.config.refreshInterval }}
    {{- if .Values.actuator.guard.enabled }}
    - --guard-dir={{ .Values.actuator.guard.dir }}
    {{- end }}
    - --metrics-address=:{{ .Values.actuator.metricsPort }}
    {{- if .Values.metrics.enabled }}
    - --metrics
    {{- end }}
    - --log-level={{ .Values.actuator.logLevel }}
    {{- /* The actuator's default. */}}
    {{- if ne (toString .Values.actuator.pluginIndex) "90" }}
    - --plugin-index={{ .Values.actuator.pluginIndex }}
    {{- end }}
    {{- with .Values.actuator.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  env:
    {{- include "cpumem.env" (dict "threads" 2 "extra" .Values.actuator.extraEnv) | trim | nindent 4 }}
  ports:
    - {name: actuator, containerPort: {{ .Values.actuator.metricsPort }}, protocol: TCP}
  {{- include "cpumem.probes" "actuator" | nindent 2 }}
  {{- with .Values.actuator.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- $add := ternary (list "SYS_ADMIN") list (and .Values.actuator.repairPartitions (ne .Values.config.exclusivity "pool")) }}
    {{- include "cpumem.securityContext" (dict "seLinuxOptions" .Values.actuator.seLinuxOptions "capabilities" $add) | nindent 4 }}
    # Container runtimes' AppArmor profiles forbid to speak to the host's D-Bus.
    appArmorProfile:
      type: Unconfined
  volumeMounts:
    - {name: cdi, mountPath: {{ .Values.config.cdiDir }}}
    # The directory, not the socket: the runtime makes a new socket when it restarts. To connect needs no right to write there.
    - {name: nri, mountPath: {{ dir .Values.actuator.nriSocket }}, readOnly: true}
    - {name: cgroup, mountPath: /host/cgroup}
    - {name: dbus, mountPath: {{ dir .Values.actuator.systemBus }}, readOnly: true}
    - {name: units, mountPath: /run/systemd/system.control}
    # The paths are the actuator's defaults.
    {{- range $mount := include "cpumem.actuator.machine" . | fromYamlArray }}
    - {name: {{ $mount.name }}, mountPath: {{ $mount.mountPath }}}
    {{- end }}
    {{- if .Values.actuator.guard.enabled }}
    # Same path as on the host: the runtime runs the guard by this path.
    - {name: guard, mountPath: {{ .Values.actuator.guard.dir }}}
    {{- end }}
    {{- with .Values.actuator.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* A runtime that requires the plugin creates this container without it. */}}
{{- define "cpumem.actuator.annotations" -}}
{{- with .Values.actuator.missingPluginAnnotation -}}
{{ . }}/container.actuator: "true"
{{- end -}}
{{- end -}}

{{/* The host's directories with values of the machine that the actuator writes. */}}
{{- define "cpumem.actuator.machine" -}}
{{- $mounts := list -}}
{{- with .Values.actuator.machine -}}
{{- if .interrupts -}}
{{- $mounts = append $mounts (dict "name" "irq" "mountPath" "/host/irq" "path" "/proc/irq") -}}
{{- end -}}
{{- if .cpuPower -}}
{{- $mounts = append $mounts (dict "name" "cpu" "mountPath" "/host/cpu" "path" "/sys/devices/system/cpu") -}}
{{- end -}}
{{- if .workQueues -}}
{{- $mounts = append $mounts (dict "name" "workqueue" "mountPath" "/host/workqueue" "path" "/sys/devices/virtual/workqueue") -}}
{{- end -}}
{{- end -}}
{{- toYaml $mounts -}}
{{- end -}}

{{- define "cpumem.actuator.volumes" -}}
- name: nri
  hostPath: {path: {{ dir .Values.actuator.nriSocket }}, type: DirectoryOrCreate}
- name: cgroup
  hostPath: {path: /sys/fs/cgroup, type: Directory}
# Systemd gets what is written into its units: for slices over D-Bus, for
# containers in runtime drop-ins. Nodes without it have no such directories.
- name: units
  hostPath: {path: {{ .Values.actuator.unitDir }}, type: DirectoryOrCreate}
- name: dbus
  hostPath: {path: {{ dir .Values.actuator.systemBus }}, type: DirectoryOrCreate}
{{- range $mount := include "cpumem.actuator.machine" . | fromYamlArray }}
- name: {{ $mount.name }}
  hostPath: {path: {{ $mount.path }}, type: Directory}
{{- end }}
{{- if .Values.actuator.guard.enabled }}
- name: guard
  hostPath: {path: {{ .Values.actuator.guard.dir }}, type: DirectoryOrCreate}
{{- end }}
{{- with .Values.actuator.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

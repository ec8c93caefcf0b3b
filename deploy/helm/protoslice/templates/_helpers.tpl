{{- define "protoslice.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "protoslice.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "protoslice.labels" -}}
{{ include "protoslice.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "protoslice.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "protoslice.name" .) .Values.serviceAccount.name }}{{ else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{- define "protoslice.image" -}}
{{- with .Values.image }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}{{ end }}
{{- end }}

{{- /* Combinations that the schema cannot express. */ -}}
{{- define "protoslice.check" -}}
{{- if and (gt (int .Values.replicas) 1) (not (and .Values.storage.uri .Values.database.existingSecret)) }}
{{- fail "replicas: more than one needs a bucket (storage.uri) and PostgreSQL (database.existingSecret)" }}
{{- end }}
{{- if and .Values.storage.uri (not .Values.database.existingSecret) }}
{{- fail "database.existingSecret: a bucket needs a PostgreSQL database" }}
{{- end }}
{{- if and .Values.backup.enabled (not .Values.backup.target) }}
{{- fail "backup.target: name a bucket for backups, other than that of the storage" }}
{{- end }}
{{- if and .Values.backup.enabled (not .Values.storage.uri) }}
{{- fail "backup.enabled: a volume has one reader, the service; back up the volume by snapshots of its storage class" }}
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) }}
{{- fail "ingress.host: name the host of the service" }}
{{- end }}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) }}
{{- fail "httpRoute.parentRefs: name the gateway" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (eq .Values.auth.mode "tokens") (not .Values.serviceMonitor.tokenSecret) }}
{{- fail "serviceMonitor.tokenSecret: /metrics needs a token; create one by `protoslice token create prometheus --scope read --every-space`" }}
{{- end }}
{{- end }}

{{- define "protoslice.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "protoslice.containerSecurity" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Settings of every container: of the service, of the upgrade, and of backups. */ -}}
{{- define "protoslice.environment" -}}
- {name: PROTOSLICE_STORAGE, value: {{ default "file:///var/lib/protoslice" .Values.storage.uri | quote }}}
{{- if .Values.storage.existingSecret }}
- {name: PROTOSLICE_STORAGE_OPTIONS_FILE, value: /run/secrets/protoslice/storage-options}
{{- end }}
{{- if .Values.database.existingSecret }}
- {name: PROTOSLICE_DATABASE_FILE, value: /run/secrets/protoslice/database}
{{- end }}
{{- range $name, $value := .Values.settings }}
- {name: {{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- range $name, $from := .Values.secretSettings }}
- {name: {{ $name }}, value: /run/secrets/protoslice/{{ $name | lower }}}
{{- end }}
{{- end }}

{{- define "protoslice.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: secrets, mountPath: /run/secrets/protoslice, readOnly: true}
{{- if not .Values.storage.uri }}
- {name: storage, mountPath: /var/lib/protoslice}
{{- end }}
{{- end }}

{{- define "protoslice.secretSources" -}}
{{- with .Values.storage }}{{ if .existingSecret }}
- secret: {name: {{ .existingSecret }}, items: [{key: {{ .key | quote }}, path: storage-options}]}
{{- end }}{{ end }}
{{- with .Values.database }}{{ if .existingSecret }}
- secret: {name: {{ .existingSecret }}, items: [{key: {{ .key | quote }}, path: database}]}
{{- end }}{{ end }}
{{- range $name, $from := .Values.secretSettings }}
- secret: {name: {{ $from.secret }}, items: [{key: {{ $from.key | quote }}, path: {{ $name | lower }}}]}
{{- end }}
{{- end }}

{{- /* The label `controller-revision-hash` of a guard has up to 35 characters more, and at most 63. */ -}}
{{- define "mathrag.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 28 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 28 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* Labels that never change; call it with (dict "root" $ "component" NAME). */ -}}
{{- define "mathrag.selector" -}}
app.kubernetes.io/name: mathrag
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "mathrag.labels" -}}
{{ include "mathrag.selector" . }}
app.kubernetes.io/version: {{ .root.Values.image.tag | default .root.Chart.AppVersion | trunc 63 | trimAll "-_." | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "mathrag.image" -}}
image: "{{ .root.Values.image.prefix }}-{{ .image }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{- end }}

{{- /* What all pods have in common; 10001 is the user of the images. The variables of service links begin with MATHRAG_, too:
       the services would take them for settings. In a shared process namespace, Kubernetes' process 1 reaps orphans. */ -}}
{{- define "mathrag.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
shareProcessNamespace: true
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "mathrag.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* Environment, mounts and volumes of the services; further ones may follow. /tmp holds up to four uploads of 256 MiB. */ -}}
{{- define "mathrag.env" -}}
env:
  - {name: MATHRAG_CONFIG, value: /etc/mathrag/mathrag.yaml}
  - {name: MATHRAG_SECRETS_DIR, value: /run/secrets/mathrag}
{{- end }}

{{- define "mathrag.mounts" -}}
volumeMounts:
  - {name: config, mountPath: /etc/mathrag, readOnly: true}
  - {name: secrets, mountPath: /run/secrets/mathrag, readOnly: true}
  - {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "mathrag.volumes" -}}
volumes:
  - name: config
    configMap: {name: {{ include "mathrag.name" .root }}}
  - name: secrets
    projected:
      defaultMode: 0440
      sources:
        - secret: {name: {{ .root.Values.secrets.services }}}
        {{- if and .root.Values.secrets.elasticsearch (eq .component "retriever") }}
        - secret: {name: {{ .root.Values.secrets.elasticsearch }}}
        {{- end }}
  - {name: tmp, emptyDir: {sizeLimit: 2Gi}}
{{- end }}

{{- define "mathrag.owner-volumes" -}}
volumes:
  - name: secrets
    secret: {secretName: {{ .Values.secrets.owner }}, defaultMode: 0440}
  - {name: tmp, emptyDir: {sizeLimit: 256Mi}}
{{- end }}

{{- define "mathrag.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* /healthz needs no key, unlike /readyz, which also fails while another service is away. */ -}}
{{- define "mathrag.http-probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 90
readinessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 6
{{- end }}

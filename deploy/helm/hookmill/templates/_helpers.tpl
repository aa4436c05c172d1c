{{- define "hookmill.fullname" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "hookmill.selector" -}}
app.kubernetes.io/name: hookmill
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "hookmill.labels" -}}
{{ include "hookmill.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: hookmill-{{ .root.Chart.Version }}
{{- end -}}

{{- define "hookmill.secretVariable" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: {{ .key }}
{{- end -}}

{{/* The content of a pod. Arguments: root, component (also the command of hookmill), values, podOptions. */}}
{{- define "hookmill.pod" -}}
{{- $values := .root.Values -}}
serviceAccountName: {{ include "hookmill.fullname" .root }}
automountServiceAccountToken: false
# Variables such as HOOKMILL_PORT, which Kubernetes derives from the name of the Service, would be settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
{{- with $values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .podOptions }}
{{ toYaml . }}
{{- end }}
volumes:
  - name: data
    emptyDir:
      sizeLimit: {{ .values.dataSizeLimit | default "1Gi" }}
  - name: tmp
    emptyDir:
      sizeLimit: 1Gi
  {{- if ne .component "migrate" }}
  - name: config
    configMap:
      name: {{ include "hookmill.fullname" .root }}
  {{- end }}
containers:
  - name: {{ .component }}
    image: "{{ required "image.repository: name the registry and repository of the image" $values.image.repository }}:{{ $values.image.tag | default .root.Chart.AppVersion }}"
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args: [{{ .component }}]
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
    env:
      # A directory of its own, because every account can list the volume itself.
      - name: HOOKMILL_DATA_DIR
        value: /var/lib/hookmill/data
      - name: HOOKMILL_BASE_URL
        value: {{ required "baseUrl: say how senders reach the service, such as https://hooks.example.com" $values.baseUrl | quote }}
      {{- if eq .component "serve" }}
      - name: HOOKMILL_PERFORMS_RUNS
        value: "false"
      {{- end }}
      {{- with $values.trustedProxies }}
      - name: HOOKMILL_TRUSTED_PROXIES
        value: {{ join "," . | quote }}
      {{- end }}
      {{- $database := required "database.secretName: name the Secret with the database's URL" $values.database.secretName }}
      {{- include "hookmill.secretVariable" (dict "name" "HOOKMILL_DATABASE_URL" "secret" $database "key" $values.database.key) | nindent 6 }}
      {{- $key := required "masterKey.secretName: name the Secret with the master key" $values.masterKey.secretName }}
      {{- include "hookmill.secretVariable" (dict "name" "HOOKMILL_MASTER_KEY" "secret" $key "key" $values.masterKey.key) | nindent 6 }}
      {{- with $values.masterKey.previousKey }}
      {{- include "hookmill.secretVariable" (dict "name" "HOOKMILL_MASTER_KEY_PREVIOUS" "secret" $key "key" .) | nindent 6 }}
      {{- end }}
      {{- if and $values.s3.secretName (ne .component "migrate") }}
      {{- include "hookmill.secretVariable" (dict "name" "HOOKMILL_S3_ACCESS_KEY_ID" "secret" $values.s3.secretName "key" "access-key-id") | nindent 6 }}
      {{- include "hookmill.secretVariable" (dict "name" "HOOKMILL_S3_SECRET_ACCESS_KEY" "secret" $values.s3.secretName "key" "secret-access-key") | nindent 6 }}
      {{- end }}
      {{- with .values.environment }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    volumeMounts:
      - name: data
        mountPath: /var/lib/hookmill
      - name: tmp
        mountPath: /tmp
      {{- if ne .component "migrate" }}
      - name: config
        mountPath: /etc/hookmill
        readOnly: true
      {{- end }}
    {{- with .values.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end -}}

{{- define "frazil.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "frazil.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "frazil.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "frazil.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "frazil.selector" -}}
app.kubernetes.io/name: {{ include "frazil.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "frazil.labels" -}}
{{ include "frazil.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "frazil.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "frazil.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "frazil.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "frazil.configMap" -}}
{{- default (include "frazil.fullname" .) .Values.config.existingConfigMap -}}
{{- end -}}

{{- /* The document as given; with executors, its section spark is completed. */ -}}
{{- define "frazil.document" -}}
{{- $document := omit .Values.config "existingConfigMap" "path" -}}
{{- if .Values.executors.enabled -}}
{{- $spark := dict "master" "k8s://https://kubernetes.default.svc" "conf" (dict
      "spark.kubernetes.container.image" (include "frazil.image" .)
      "spark.kubernetes.namespace" .Release.Namespace
      "spark.kubernetes.driver.pod.name" "${POD_NAME}"
      "spark.kubernetes.executor.podTemplateFile" "/etc/frazil-executors/executor.yaml"
      "spark.driver.host" "${POD_IP}"
      "spark.driver.bindAddress" "0.0.0.0"
      "spark.driver.port" "7078"
      "spark.driver.blockManager.port" "7079"
      "spark.executor.instances" (toString .Values.executors.instances)
      "spark.executor.cores" (toString .Values.executors.cores)
      "spark.executor.memory" .Values.executors.memory) -}}
{{- $document = mergeOverwrite (dict "spark" $spark) (deepCopy $document) -}}
{{- end -}}
{{- toYaml $document -}}
{{- end -}}

{{- /* Seconds that a pod has to end: what the document grants a batch, and a margin for Spark. */ -}}
{{- define "frazil.grace" -}}
{{- $grace := toString (default "30s" .Values.config.shutdown_grace) -}}
{{- $unit := regexFind "[a-z]+$" $grace -}}
{{- $seconds := dict "s" 1 "m" 60 "h" 3600 "d" 86400 -}}
{{- if not (kindIs "invalid" .Values.terminationGracePeriodSeconds) -}}
{{- int .Values.terminationGracePeriodSeconds -}}
{{- else if not (regexMatch "^[0-9]+(ms|s|m|h|d)$" $grace) -}}
{{- fail (printf "config.shutdown_grace: %s is no duration that the chart can read; set terminationGracePeriodSeconds" $grace) -}}
{{- else if eq $unit "ms" -}}
{{- add (div (trimSuffix "ms" $grace | int) 1000) 31 -}}
{{- else -}}
{{- add (mul (get $seconds $unit) (trimSuffix $unit $grace | int)) 30 -}}
{{- end -}}
{{- end -}}

{{- define "frazil.env" -}}
- {name: HOME, value: /var/lib/frazil}
- {name: FRAZIL__TELEMETRY__LISTEN, value: {{ printf "0.0.0.0:%v" .Values.service.port | quote }}}
{{- if .Values.pages.tokenSecret.name }}
- {name: FRAZIL__TELEMETRY__PAGES, value: "true"}
- name: FRAZIL__TELEMETRY__TOKEN
  valueFrom:
    secretKeyRef: {name: {{ .Values.pages.tokenSecret.name }}, key: {{ .Values.pages.tokenSecret.key }}}
{{- else }}
- {name: FRAZIL__TELEMETRY__PAGES, value: "false"}
{{- end }}
{{- if not (dig "mirror" "index" "cache_dir" "" .Values.config) }}
- {name: FRAZIL__MIRROR__INDEX__CACHE_DIR, value: /var/lib/frazil/cache}
{{- end }}
{{- if and (eq (dig "source" "kind" "" .Values.config) "postgres") (not (dig "source" "spool" "dir" "" .Values.config)) }}
- {name: FRAZIL__SOURCE__SPOOL__DIR, value: /var/lib/frazil/spool}
{{- end }}
{{- if .Values.executors.enabled }}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "frazil.envFrom" -}}
{{- $names := list .Values.s3.credentialsSecretRef -}}
{{- if not .Values.s3.credentialsSecretRef -}}
{{- $names = list .Values.envFromSecret -}}
{{- end -}}
{{- range compact (concat (list .Values.existingSecret) $names .Values.secretRefs) | uniq }}
- secretRef: {name: {{ . }}}
{{- end }}
{{- end -}}

{{- define "frazil.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "frazil.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* A pod; takes root, verb, component and once. */ -}}
{{- define "frazil.pod" -}}
{{- $root := .root -}}
metadata:
  labels:
    {{- include "frazil.selector" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    {{- with $root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # A changed document is a new pod.
    checksum/config: {{ include "frazil.document" $root | sha256sum }}
    {{- with $root.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "frazil.serviceAccount" $root }}
  automountServiceAccountToken: {{ $root.Values.executors.enabled }}
  terminationGracePeriodSeconds: {{ include "frazil.grace" $root }}
  {{- if .once }}
  restartPolicy: Never
  {{- end }}
  {{- with $root.Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "frazil.podSecurity" $root | nindent 4 }}
  containers:
    - name: frazil
      image: {{ include "frazil.image" $root | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: [{{ .verb }}{{ if .once }}, --once{{ end }}, -c, {{ $root.Values.config.path }}]
      env:
        {{- include "frazil.env" $root | nindent 8 }}
      {{- with include "frazil.envFrom" $root }}
      envFrom:
        {{- . | trim | nindent 8 }}
      {{- end }}
      ports:
        - {name: metrics, containerPort: {{ $root.Values.service.port }}}
        {{- if $root.Values.executors.enabled }}
        - {name: driver, containerPort: 7078}
        - {name: blocks, containerPort: 7079}
        {{- end }}
      {{- if not .once }}
      startupProbe:
        httpGet: {path: /healthz, port: metrics}
        periodSeconds: 5
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: /healthz, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 5
      {{- end }}
      {{- with $root.Values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- include "frazil.containerSecurity" $root | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: {{ dir $root.Values.config.path }}, readOnly: true}
        - {name: data, mountPath: /var/lib/frazil}
        - {name: tmp, mountPath: /tmp}
        {{- if $root.Values.executors.enabled }}
        - {name: executors, mountPath: /etc/frazil-executors, readOnly: true}
        {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ include "frazil.configMap" $root }}}
    - name: data
      {{- if and $root.Values.persistence.enabled (not .once) }}
      persistentVolumeClaim:
        claimName: {{ $root.Values.persistence.existingClaim | default (printf "%s-%s" (include "frazil.fullname" $root) .component) }}
      {{- else }}
      emptyDir: {sizeLimit: {{ $root.Values.persistence.size }}}
      {{- end }}
    - name: tmp
      emptyDir: {}
    {{- if $root.Values.executors.enabled }}
    - name: executors
      configMap: {name: {{ include "frazil.fullname" $root }}-executors}
    {{- end }}
  {{- with $root.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- /* The roles that run until they are stopped, separated by blanks. */ -}}
{{- define "frazil.roles" -}}
{{- if eq .Values.mode "roles" -}}
ingest merge{{ if and (include "frazil.isMaintained" .) (not .Values.maintainCronjob.enabled) }} maintain{{ end }}
{{- else if ne .Values.mode "cronjob" -}}{{ .Values.mode }}
{{- end -}}
{{- end -}}

{{- /* Empty where the document turns maintenance off: the command would refuse to start. */ -}}
{{- define "frazil.isMaintained" -}}
{{- if dig "maintenance" "enabled" true .Values.config -}}yes{{- end -}}
{{- end -}}

{{- /* What would be installed and never work is refused here. */ -}}
{{- define "frazil.refuse" -}}
{{- $kind := dig "source" "kind" "" .Values.config -}}
{{- if and .Values.autoscaling.enabled $kind (ne $kind "kafscale") -}}
{{- fail (printf "autoscaling: workers of the source %s do not share its work; a second one stands by" $kind) -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (not (has .Values.mode (list "run" "roles" "ingest"))) -}}
{{- fail (printf "autoscaling: the mode %s captures nothing; use run, roles or ingest" .Values.mode) -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (not .Values.autoscaling.metrics) (not (dig "requests" "cpu" "" .Values.resources)) -}}
{{- fail "autoscaling: a share of the CPU needs resources.requests.cpu" -}}
{{- end -}}
{{- $several := or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1) -}}
{{- if and .Values.persistence.enabled $several (ne .Values.mode "cronjob") -}}
{{- fail "persistence: one volume cannot serve several replicas; leave it off, an emptyDir is enough" -}}
{{- end -}}
{{- $verb := ternary .Values.cronjob.verb .Values.mode (eq .Values.mode "cronjob") -}}
{{- $captures := has $verb (list "run" "roles" "ingest") -}}
{{- if and .Values.executors.enabled $captures (eq $kind "postgres") (not (dig "source" "spool" "dir" "" .Values.config)) -}}
{{- fail "executors: they read the spool, so config.source.spool.dir must name a store that all pods reach, such as s3://lake/spool" -}}
{{- end -}}
{{- if and (or .Values.maintainCronjob.enabled (eq $verb "maintain")) (not (include "frazil.isMaintained" .)) -}}
{{- fail "config.maintenance.enabled is false: there is nothing to maintain" -}}
{{- end -}}
{{- end -}}

{{- define "stillpoint.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "stillpoint.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "stillpoint.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "stillpoint.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The full name with a suffix, within the 63 characters of a name. */}}
{{- define "stillpoint.named" -}}
{{- $suffix := last . -}}
{{- printf "%s-%s" (include "stillpoint.fullname" (first .) | trunc (int (sub 62 (len $suffix))) | trimSuffix "-") $suffix }}
{{- end }}

{{- define "stillpoint.selectorLabels" -}}
app.kubernetes.io/name: {{ include "stillpoint.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "stillpoint.labels" -}}
app.kubernetes.io/name: {{ include "stillpoint.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: stillpoint
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "stillpoint.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "stillpoint.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "stillpoint.image" -}}
{{- if .Values.image.image }}
{{- .Values.image.image }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tagOverride) }}
{{- end }}
{{- end }}

{{/* Whether the admission policy is installed: it is wanted, and the cluster serves it. Where no cluster is asked (helm template), Helm knows
groups and no kinds, and every version of Kubernetes that the chart is for serves it. */}}
{{- define "stillpoint.admissionPolicy" -}}
{{- $asked := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration" -}}
{{- $served := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" -}}
{{- if and .Values.admissionPolicy.enabled (or $served (not $asked)) }}true{{ end -}}
{{- end }}

{{/* Two installations for namespaces of their own have a policy each. */}}
{{- define "stillpoint.admissionPolicyName" -}}
{{- if .Values.watchNamespaces }}{{ include "stillpoint.named" (list . .Release.Namespace) }}{{ else }}{{ include "stillpoint.fullname" . }}{{ end -}}
{{- end }}

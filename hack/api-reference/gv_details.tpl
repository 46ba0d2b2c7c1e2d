{{- define "gvDetails" -}}
Kinds of `{{ .GroupVersionString }}`:
{{ $gv := . }}
{{- range .SortedKinds }}
- {{ $gv.TypeForKind . | markdownRenderTypeLink }}
{{- end }}

{{ range .SortedTypes }}
{{- template "type" . }}
{{- end }}
{{- end -}}

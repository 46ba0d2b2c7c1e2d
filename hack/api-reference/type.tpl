{{- define "type" -}}
{{- $type := . -}}
{{- if markdownShouldRenderType $type -}}
## {{ $type.Name }}

{{ $type.Doc }}

{{ if $type.IsAlias -}}
A {{ markdownRenderTypeLink $type.UnderlyingType }}
{{- range $type.Validation }}{{ if hasPrefix "Enum:" . }}, one of {{ trimPrefix "Enum: " . }}{{ end }}{{ end }}.

{{ end -}}
{{- if $type.References -}}
In:{{ range $i, $r := $type.SortedReferences }}{{ if $i }},{{ end }} {{ markdownRenderTypeLink $r }}{{ end }}

{{ end -}}
{{- if $type.Members -}}
| field | type | meaning |
|---|---|---|
{{ if $type.GVK -}}
| `apiVersion` | string | `{{ $type.GVK.Group }}/{{ $type.GVK.Version }}` |
| `kind` | string | `{{ $type.GVK.Kind }}` |
{{ end -}}
{{ range $type.Members -}}
| `{{ .Name }}` | {{ markdownRenderType .Type }} | {{ template "type_members" . }} |
{{ end }}
{{ end -}}
{{- end -}}
{{- end -}}

{{- define "gvList" -}}
# API reference

Written by `make generate` from the comments in `api/v1`. What the fields are for is told in [hooks](hooks.md), [scheduling](scheduling.md) and [retention](retention.md).

{{ range . -}}
{{ template "gvDetails" . -}}
{{ end -}}
{{ end -}}

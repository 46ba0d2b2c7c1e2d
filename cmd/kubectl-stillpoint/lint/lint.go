// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// File is a text to be judged.
type File struct {
	Name string
	Data []byte
	// Named: somebody asked for this very file, so that it must be YAML whatever it is about.
	Named bool
}

// Options of a judgement.
type Options struct {
	// Namespace of objects that name none; may be empty.
	Namespace string
	// Now is from when on schedules are looked at for the same minute.
	Now time.Time
}

// linter collects the findings of one judgement.
type linter struct {
	Options
	schemas   map[string]*schema
	report    Report
	schedules []*object
	names     map[string]*object
}

// object is one SnapshotSchedule or SnapshotRun.
type object struct {
	*document
	kind, name string // name: kind namespace/name
	namespace  string
	refused    map[string]bool // fields about which there is a finding already
	schedule   *v1.SnapshotSchedule
}

// Lint judges files, in their order. The error is this program's own; whatever is wrong with the files is in the report.
func Lint(ctx context.Context, files []File, o Options) (*Report, error) {
	l, err := newLinter(o)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		l.file(ctx, f)
	}
	l.collisions()
	l.report.sort()
	return &l.report, nil
}

// Schedule reads the SnapshotSchedule of a file that holds just one; nil: the report says why the API server would not take it.
func Schedule(ctx context.Context, f File, o Options) (*v1.SnapshotSchedule, *Report, error) {
	l, err := newLinter(o)
	if err != nil {
		return nil, nil, err
	}
	f.Named = true
	l.file(ctx, f)
	l.report.sort()
	switch {
	case l.report.Count(Error) > 0:
		return nil, &l.report, nil
	case len(l.schedules) != 1:
		return nil, &l.report, fmt.Errorf("%s holds %d SnapshotSchedules, and one is needed", f.Name, len(l.schedules))
	}
	return l.schedules[0].schedule, &l.report, nil
}

func newLinter(o Options) (*linter, error) {
	known, err := schemas()
	if err != nil {
		return nil, err
	}
	return &linter{Options: o, schemas: known, names: map[string]*object{}}, nil
}

func (l *linter) file(ctx context.Context, f File) {
	l.report.Files++
	for _, c := range split(f.Data) {
		d, err := parse(f.Name, c)
		if err != nil {
			l.notYAML(f, c, err)
			continue
		}
		if d == nil {
			continue
		}
		for _, item := range d.items() {
			l.judge(ctx, item)
		}
	}
}

// notYAML reports a text that cannot be read, unless it is somebody else's.
func (l *linter) notYAML(f File, c chunk, err error) {
	if !f.Named && !bytes.Contains(c.text, []byte(v1.GroupVersion.Group)) {
		return
	}
	s := asSyntaxError(err)
	message := s.message
	if bytes.Contains(c.text, []byte("{{")) {
		message += "; this looks like a template: render it first (helm template ... | kubectl stillpoint lint -f -)"
	}
	l.report.Findings = append(l.report.Findings, Finding{File: f.Name, Line: s.line, Column: 1, Level: Error, Rule: "yaml", Message: message})
}

func (l *linter) judge(ctx context.Context, d *document) {
	version, _ := d.fields["apiVersion"].(string)
	kind, _ := d.fields["kind"].(string)
	ours := strings.HasPrefix(version, v1.GroupVersion.Group+"/")
	if !ours && (version != "" || (kind != "SnapshotSchedule" && kind != "SnapshotRun")) {
		return
	}
	o := &object{document: d, kind: kind, refused: map[string]bool{}}
	o.namespace, _ = nested(d.fields, "metadata", "namespace")
	if o.namespace == "" {
		o.namespace = l.Namespace
	}
	name, _ := nested(d.fields, "metadata", "name")
	if name == "" {
		if generate, _ := nested(d.fields, "metadata", "generateName"); generate != "" {
			name = generate + "*"
		}
	}
	o.name = strings.TrimSpace(kind + " " + strings.TrimPrefix(o.namespace+"/"+name, "/"))
	line, _ := o.locate("")
	l.report.Objects = append(l.report.Objects, Object{File: d.file, Line: line, Name: o.name})
	s := l.schemas[kind]
	if s == nil || version != v1.GroupVersion.String() {
		l.find(o, "unknown-kind", "apiVersion", "%q of %q does not exist; there are SnapshotSchedule and SnapshotRun of %s", kind, version, v1.GroupVersion)
		return
	}
	l.schema(ctx, o, s)
	l.unique(o, name)
	l.meaning(o)
}

// schema reports what the API server would refuse.
func (l *linter) schema(ctx context.Context, o *object, s *schema) {
	o.duplicates(func(path string, line, column, first int) {
		l.add(Finding{File: o.file, Line: line, Column: column, Rule: "duplicate-key", Object: o.name, Path: path, Message: fmt.Sprintf("the key stands in line %d already", first)})
	})
	for _, path := range s.unknown(o.fields) {
		if path == "status" || strings.HasPrefix(path, "status.") {
			continue
		}
		message := "there is no such field"
		if near := s.nearest(path); near != "" {
			message += "; did you mean " + near + "?"
		}
		l.find(o, "unknown-field", path, "%s", message)
	}
	said := map[string]bool{}
	for _, e := range s.check(ctx, o.fields) {
		path := strings.TrimPrefix(e.Field, "<nil>")
		text := words(e)
		if said[path+text] {
			continue
		}
		said[path+text] = true
		l.find(o, "admission", path, "%s", text)
	}
}

// meaning reports what only the operator would notice.
func (l *linter) meaning(o *object) {
	fields := runtime.DeepCopyJSON(o.fields)
	delete(fields, "status")
	if o.kind == "SnapshotRun" {
		if _, ok := nestedAny(fields, "spec", "slot"); ok {
			l.find(o, "run-slot", "spec.slot", "the operator sets the slot, and completes a run whose slot is not its own as Failed; remove the field")
		}
		return
	}
	var s v1.SnapshotSchedule
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &s); err != nil {
		return // of a wrong type: reported
	}
	s.Namespace = o.namespace
	o.schedule = &s
	l.schedules = append(l.schedules, o)
	l.calendar(o)
	l.retention(o)
	l.hooks(o)
}

// unique reports a second object of the same name.
func (l *linter) unique(o *object, name string) {
	if name == "" || strings.HasSuffix(name, "*") {
		return
	}
	if first, ok := l.names[o.name]; ok {
		line, _ := first.locate("metadata.name")
		l.find(o, "duplicate-name", "metadata.name", "the same object stands in %s:%d; the one that is applied later replaces the other", first.file, line)
		return
	}
	l.names[o.name] = o
}

// find adds a finding about a field of an object.
func (l *linter) find(o *object, rule, path, format string, args ...any) {
	line, column := o.locate(path)
	o.refused[path] = true
	l.add(Finding{File: o.file, Line: line, Column: column, Rule: rule, Object: o.name, Path: path, Message: fmt.Sprintf(format, args...)})
}

func (l *linter) add(f Finding) {
	if f.Level == "" {
		f.Level = levelOf(f.Rule)
	}
	l.report.Findings = append(l.report.Findings, f)
}

// said reports whether there is a finding about a field, or something in it, already.
func (o *object) said(path string) bool {
	for p := range o.refused {
		if p == path || strings.HasPrefix(p, path+".") || strings.HasPrefix(p, path+"[") || strings.HasPrefix(path, p+".") || strings.HasPrefix(path, p+"[") {
			return true
		}
	}
	return false
}

func nested(fields map[string]any, path ...string) (string, bool) {
	v, ok := nestedAny(fields, path...)
	s, isString := v.(string)
	return s, ok && isString
}

func nestedAny(fields map[string]any, path ...string) (any, bool) {
	var v any = fields
	for _, step := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[step]; !ok {
			return nil, false
		}
	}
	return v, true
}

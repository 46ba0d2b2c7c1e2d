// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestUnitHash(t *testing.T) {
	u := unit{name: "tool", module: "m", packages: []string{"./cmd/tool"}, sources: "cmd/tool"}
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, "m", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	hash := func(u unit, version string) string {
		t.Helper()
		h, err := u.hash(dir, version)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	put("go.mod", "module m\n")
	put("cmd/tool/main.go", "package main\n")
	base := hash(u, "go1.26")

	for name, change := range map[string]func() string{
		"another compiler": func() string { return hash(u, "go1.27") },
		"another flag":     func() string { v := u; v.ldflags = "-s"; return hash(v, "go1.26") },
		"a pin":            func() string { put("go.sum", "x v1 h1:=\n"); return hash(u, "go1.26") },
		"a source":         func() string { put("cmd/tool/main.go", "package main // new\n"); return hash(u, "go1.26") },
	} {
		if change() == base {
			t.Errorf("%s makes no new build", name)
		}
	}
	before := hash(u, "go1.26")
	put("cmd/other/main.go", "package main\n")
	if hash(u, "go1.26") != before {
		t.Error("a source of another program makes a new build")
	}
}

func TestUnits(t *testing.T) {
	src, err := buildDir()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, u := range units() {
		if _, err := u.hash(src, "go1.26"); err != nil {
			t.Error(err)
		}
		for _, p := range u.programs() {
			if seen[p] != "" {
				t.Errorf("%s is built by %s and by %s", p, seen[p], u.name)
			}
			seen[p] = u.name
		}
	}
	c := &Cluster{opts: Options{StateDir: "/state"}}
	for i, comp := range c.components() {
		if seen[comp.argv[0]] == "" {
			t.Errorf("nothing builds %s, which %s runs", comp.argv[0], comp.name)
		}
		if comp.name != ComponentNames()[i] {
			t.Errorf("component %d is %s, and ComponentNames says %s", i, comp.name, ComponentNames()[i])
		}
	}
	mod, err := os.ReadFile(filepath.Join(src, "kube", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mod), "k8s.io/kubernetes "+kubeVersion+" ") {
		t.Errorf("build/kube/go.mod pins another version than %s", kubeVersion)
	}
}

func TestStateDirMustBeShortAndDeep(t *testing.T) {
	for dir, ok := range map[string]bool{
		DefaultStateDir:                 true,
		strings.Repeat("/123", 9):       true,
		"/" + strings.Repeat("x/y", 20): false,
		"/var":                          false,
		"/":                             false,
	} {
		if _, err := (Options{StateDir: dir, CacheDir: "/cache"}).withDefaults(); (err == nil) != ok {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestFreeSpaceIsAskedOfADirectoryThatIsNotThereYet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := checkSpace(dir, 1, "this"); err != nil {
		t.Error(err)
	}
	if err := checkSpace(dir, 1<<60, "this"); err == nil {
		t.Error("there is room for an exbibyte")
	}
}

func TestKnobsAreWrittenAsTheDriverReadsThem(t *testing.T) {
	b, err := json.Marshal(Knobs{CutDelay: 1500 * time.Millisecond, FailCreateSnapshot: "full", FailVolumes: []string{"a/b"}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"CutDelay":"1.5s","ReplyDelay":"0s","ReadyDelay":"0s","FailCreateSnapshot":"full","FailVolumes":["a/b"]}`
	if string(b) != want {
		t.Errorf("got %s, want %s", b, want)
	}
}

func TestMainClusterIsForbidden(t *testing.T) {
	for text, want := range map[string]string{
		"#create_main_cluster = true\nport = 1\n": "create_main_cluster = false\nport = 1\n",
		"create_main_cluster=true\n":              "create_main_cluster = false\n",
		"port = 1\n":                              "port = 1\n\ncreate_main_cluster = false\n",
	} {
		if got := string(withoutMainCluster([]byte(text))); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestLockIsExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path, os.Stderr, "the first")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := lock(ctx, path, os.Stderr, "the first"); err == nil {
		t.Error("two hold it")
	}
	unlock()
	unlock, err = lock(t.Context(), path, os.Stderr, "nobody")
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

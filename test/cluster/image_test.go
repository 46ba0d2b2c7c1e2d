// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestWriteImage(t *testing.T) {
	root := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "bin"), 0o755),
		os.WriteFile(filepath.Join(root, "bin", "tool"), []byte("#!/bin/sh\n"), 0o755),
		os.Symlink("tool", filepath.Join(root, "bin", "alias")),
		os.Mkdir(filepath.Join(root, "tmp"), 0o755),
		os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	image := filepath.Join(t.TempDir(), "image.tar")
	if err := WriteImage(image, root, "example.test/tool:1", []string{"/bin/tool"}, nil); err != nil {
		t.Fatal(err)
	}
	files, _ := untar(t, read(t, filepath.Dir(image), "image.tar"))

	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	var config struct {
		Config struct{ Entrypoint []string }
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := errors.Join(json.Unmarshal(files["manifest.json"], &manifest), json.Unmarshal(files["config.json"], &config)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(manifest[0].RepoTags, []string{"example.test/tool:1"}) || !slices.Equal(config.Config.Entrypoint, []string{"/bin/tool"}) {
		t.Errorf("manifest %v, config %v", manifest, config)
	}
	sum := sha256.Sum256(files[manifest[0].Layers[0]])
	if want := "sha256:" + hex.EncodeToString(sum[:]); config.Rootfs.DiffIDs[0] != want {
		t.Errorf("the config says that the layer is %s, it is %s", config.Rootfs.DiffIDs[0], want)
	}

	_, headers := untar(t, files["layer.tar"])
	for name, check := range map[string]func(*tar.Header) bool{
		"bin/tool":  func(h *tar.Header) bool { return h.Mode == 0o755 && h.Uid == 0 && h.ModTime.Equal(time.Unix(0, 0)) },
		"bin/alias": func(h *tar.Header) bool { return h.Typeflag == tar.TypeSymlink && h.Linkname == "tool" },
		"tmp/":      func(h *tar.Header) bool { return h.Mode == 0o1777 },
	} {
		if h := headers[name]; h == nil || !check(h) {
			t.Errorf("%s in the layer: %+v", name, h)
		}
	}

	t.Run("the same directory makes the same image", func(t *testing.T) {
		again := filepath.Join(t.TempDir(), "again.tar")
		if err := os.Chtimes(filepath.Join(root, "bin", "tool"), time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := WriteImage(again, root, "example.test/tool:1", []string{"/bin/tool"}, nil); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(read(t, filepath.Dir(image), "image.tar"), read(t, filepath.Dir(again), "again.tar")) {
			t.Error("they differ")
		}
	})
	t.Run("a name without a tag is refused", func(t *testing.T) {
		if WriteImage(image, root, "example.test:5000/tool", nil, nil) == nil {
			t.Error("it was taken")
		}
	})
}

func untar(t *testing.T, b []byte) (map[string][]byte, map[string]*tar.Header) {
	t.Helper()
	files, headers := map[string][]byte{}, map[string]*tar.Header{}
	for tr := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name], headers[h.Name] = content, h
	}
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// WriteImage packs a directory as a container image of one layer and returns the path of the archive. ref must have
// a tag ("stillpoint.test/operator:dev"). Load it with LoadImage.
func (c *Cluster) WriteImage(rootfsDir, ref string, entrypoint, cmd []string) (tarPath string, err error) {
	if err := os.MkdirAll(c.path("images"), 0o755); err != nil {
		return "", err
	}
	tarPath = c.path("images", strings.NewReplacer("/", "_", ":", "_").Replace(ref)+".tar")
	return tarPath, WriteImage(tarPath, rootfsDir, ref, entrypoint, cmd)
}

// WriteImage packs a directory as a docker-archive of one layer. All files belong to root and have no time, so the
// same directory always makes the same image.
func WriteImage(tarPath, rootfsDir, ref string, entrypoint, cmd []string) error {
	if i := strings.LastIndexByte(ref, ':'); i <= strings.LastIndexByte(ref, '/') {
		return fmt.Errorf("the image name %q has no tag", ref)
	}
	layer, err := os.CreateTemp(filepath.Dir(tarPath), ".layer-")
	if err != nil {
		return err
	}
	defer os.Remove(layer.Name())
	defer layer.Close()
	sum := sha256.New()
	if err := writeLayer(io.MultiWriter(layer, sum), rootfsDir); err != nil {
		return fmt.Errorf("packing %s: %w", rootfsDir, err)
	}
	config, err := imageConfig("sha256:"+hex.EncodeToString(sum.Sum(nil)), entrypoint, cmd)
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{ref}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(tarPath), ".image-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := writeArchive(tmp, manifest, config, layer); err != nil {
		return fmt.Errorf("writing %s: %w", tarPath, err)
	}
	return os.Rename(tmp.Name(), tarPath)
}

func imageConfig(diffID string, entrypoint, cmd []string) ([]byte, error) {
	return json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config":  map[string]any{"Env": []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, "Entrypoint": entrypoint, "Cmd": cmd},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{diffID}},
		"history": []map[string]string{{"created_by": "stillpoint test/cluster"}},
	})
}

func writeArchive(w io.Writer, manifest, config []byte, layer *os.File) error {
	tw := tar.NewWriter(w)
	add := func(name string, size int64, r io.Reader) error {
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0)}); err != nil {
			return err
		}
		_, err := io.Copy(tw, r)
		return err
	}
	if err := add("manifest.json", int64(len(manifest)), strings.NewReader(string(manifest))); err != nil {
		return err
	}
	if err := add("config.json", int64(len(config)), strings.NewReader(string(config))); err != nil {
		return err
	}
	size, err := layer.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := add("layer.tar", size, layer); err != nil {
		return err
	}
	return tw.Close()
}

// writeLayer packs a directory in lexical order.
func writeLayer(w io.Writer, root string) error {
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		link := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			if link, err = os.Readlink(path); err != nil {
				return err
			}
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		if h.Name, err = filepath.Rel(root, path); err != nil {
			return err
		}
		if d.IsDir() {
			h.Name += "/"
		}
		h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
		h.ModTime, h.AccessTime, h.ChangeTime = time.Unix(0, 0), time.Time{}, time.Time{}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(tw, f)
		return err
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

// LoadImage gives an archive's image to the node. Use it in pods with imagePullPolicy: Never.
func (c *Cluster) LoadImage(ctx context.Context, tarPath string) error {
	if err := quiet(ctx, c.ctr("image", "import", tarPath)...); err != nil {
		return fmt.Errorf("loading image %s: %w", tarPath, err)
	}
	return nil
}

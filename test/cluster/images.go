// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// writeStandardImages makes the three images that every cluster has and returns their archives.
func (c *Cluster) writeStandardImages(ctx context.Context) ([]string, error) {
	work, err := os.MkdirTemp("", "stillpoint-images-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	var tars []string
	for _, image := range []struct {
		ref        string
		fill       func(ctx context.Context, root string) error
		entrypoint []string
		cmd        []string
	}{
		{PauseImage, c.fillPause, []string{"/pause"}, nil},
		{ToolsImage, fillTools, nil, []string{"/bin/sh"}},
		{HostRootImage, fillHostRoot, nil, []string{"/bin/sh"}},
	} {
		root := filepath.Join(work, strings.ReplaceAll(image.ref, "/", "_"))
		if err := image.fill(ctx, root); err != nil {
			return nil, fmt.Errorf("making the image %s: %w", image.ref, err)
		}
		path, err := c.WriteImage(root, image.ref, image.entrypoint, image.cmd)
		if err != nil {
			return nil, err
		}
		tars = append(tars, path)
	}
	return tars, nil
}

func (c *Cluster) fillPause(_ context.Context, root string) error {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	bin, err := c.resolve("pause")
	if err != nil {
		return err
	}
	return copyFile(bin, filepath.Join(root, "pause"), 0o755)
}

// fillTools takes busybox, which needs nothing else, and fsfreeze of util-linux with its libraries.
func fillTools(ctx context.Context, root string) error {
	if err := makeDirs(root, "bin", "sbin", "usr/bin", "usr/sbin", "etc", "tmp", "var", "proc", "sys", "dev", "root"); err != nil {
		return err
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	if err := copyFile(busybox, filepath.Join(root, "bin/busybox"), 0o755); err != nil {
		return err
	}
	applets, err := output(ctx, busybox, "--list")
	if err != nil {
		return err
	}
	for _, name := range applets {
		if name == "busybox" || name == "fsfreeze" {
			continue
		}
		if err := os.Symlink("/bin/busybox", filepath.Join(root, "bin", name)); err != nil {
			return err
		}
	}
	if err := copyWithLibraries(ctx, "fsfreeze", root); err != nil {
		return err
	}
	return writeNames(root, "root:x:0:0:root:/root:/bin/sh\n", "root:x:0:\n")
}

// copyWithLibraries copies a program of this machine to /usr/sbin of an image, and each library to where it is here.
func copyWithLibraries(ctx context.Context, program, root string) error {
	path, err := exec.LookPath(program)
	if err != nil {
		return err
	}
	if err := copyFile(path, filepath.Join(root, "usr/sbin", program), 0o755); err != nil {
		return err
	}
	lines, err := output(ctx, "ldd", path)
	if err != nil {
		return err
	}
	for _, line := range lines {
		for _, word := range strings.Fields(line) {
			if !strings.HasPrefix(word, "/") {
				continue
			}
			to := filepath.Join(root, word)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			if err := copyFile(word, to, 0o755); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// fillHostRoot makes an empty root whose /usr is mounted by the pod. What programs of Debian look for in /etc is copied.
func fillHostRoot(_ context.Context, root string) error {
	if err := makeDirs(root, "usr", "etc", "tmp", "var/tmp", "run", "proc", "sys", "dev", "root"); err != nil {
		return err
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+dir, filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	for _, file := range []string{"passwd", "group", "ld.so.cache", "ld.so.conf", "nsswitch.conf"} {
		if !fileExists("/etc/" + file) {
			continue
		}
		if err := copyFile("/etc/"+file, filepath.Join(root, "etc", file), 0o644); err != nil {
			return err
		}
	}
	return copyLinks("/etc/alternatives", filepath.Join(root, "etc/alternatives"))
}

func copyLinks(from, to string) error {
	entries, err := os.ReadDir(from)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type()&os.ModeSymlink == 0 {
			continue
		}
		target, err := os.Readlink(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		if err := os.Symlink(target, filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func makeDirs(root string, dirs ...string) error {
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
		mode := os.FileMode(0o755)
		if filepath.Base(d) == "tmp" {
			mode = 0o777 | os.ModeSticky
		}
		if err := os.Chmod(filepath.Join(root, d), mode); err != nil {
			return err
		}
	}
	return nil
}

func writeNames(root, passwd, group string) error {
	if err := os.WriteFile(filepath.Join(root, "etc/passwd"), []byte(passwd), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "etc/group"), []byte(group), 0o644)
}

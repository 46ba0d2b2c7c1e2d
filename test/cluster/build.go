// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	progressEvery  = 15 * time.Second
	freeForBuild   = 10 << 30 // bytes: compiler cache, module cache and results
	freeForRunning = 2 << 30  // bytes: state
)

// Assets returns a directory with etcd, kube-apiserver and kubectl, as envtest wants it in KUBEBUILDER_ASSETS. It
// builds what is missing of them, and nothing else.
func Assets(ctx context.Context, o Options) (string, error) {
	var err error
	if o.CacheDir, err = cacheDir(o.CacheDir); err != nil {
		return "", err
	}
	if o.Out == nil {
		o.Out = os.Stderr
	}
	dirs, err := build(ctx, o.CacheDir, o.Out, assetUnits)
	if err != nil {
		return "", err
	}
	key := ""
	for _, u := range assetUnits {
		key += filepath.Base(dirs[u])[len(u):]
	}
	dir := filepath.Join(o.CacheDir, "assets"+key)
	for _, u := range units() {
		if slices.Contains(assetUnits, u.name) {
			if err := linkPrograms(dir, dirs[u.name], u.programs()); err != nil {
				return "", err
			}
		}
	}
	return dir, nil
}

// Build builds every program that is not in the cache yet. Up does so by itself.
func Build(ctx context.Context, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	_, err = build(ctx, o.CacheDir, o.Out, nil)
	return err
}

func linkPrograms(dir, from string, names []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		link, target := filepath.Join(dir, name), filepath.Join(from, name)
		if now, err := os.Readlink(link); err == nil && now == target {
			continue
		}
		tmp := fmt.Sprintf("%s.%d.tmp", link, os.Getpid())
		if err := os.Symlink(target, tmp); err != nil {
			return err
		}
		if err := os.Rename(tmp, link); err != nil {
			return err
		}
	}
	return nil
}

// build returns the directory of each named unit (nil: all), building those that are missing, one after the other.
func build(ctx context.Context, cache string, out io.Writer, names []string) (map[string]string, error) {
	src, err := buildDir()
	if err != nil {
		return nil, err
	}
	version, err := goVersion()
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{}
	var missing []unit
	for _, u := range units() {
		if names != nil && !slices.Contains(names, u.name) {
			continue
		}
		hash, err := u.hash(src, version)
		if err != nil {
			return nil, err
		}
		dirs[u.name] = filepath.Join(cache, "bin", u.name+"-"+hash)
		if !fileExists(dirs[u.name]) {
			missing = append(missing, u)
		}
	}
	if len(missing) == 0 {
		return dirs, nil
	}
	if err := os.MkdirAll(filepath.Join(cache, "bin"), 0o755); err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, filepath.Join(cache, "build.lock"), out, "another build")
	if err != nil {
		return nil, err
	}
	defer unlock()
	goDirs, err := output(ctx, "go", "env", "GOCACHE", "GOMODCACHE")
	if err != nil {
		return nil, err
	}
	for _, dir := range append(goDirs, cache) {
		if err := checkSpace(dir, freeForBuild, "building the cluster's programs"); err != nil {
			return nil, err
		}
	}
	// of builds that were killed; nobody else builds while the lock is held
	halves, err := filepath.Glob(filepath.Join(cache, "bin", ".tmp-*"))
	if err != nil {
		return nil, err
	}
	for _, h := range halves {
		if err := os.RemoveAll(h); err != nil {
			return nil, err
		}
	}
	for i, u := range missing {
		if fileExists(dirs[u.name]) { // built by whoever held the lock
			continue
		}
		step := fmt.Sprintf("[%d/%d] %s", i+1, len(missing), u.name)
		if err := buildUnit(ctx, u, src, dirs[u.name], out, step); err != nil {
			return nil, err
		}
	}
	return dirs, nil
}

func buildUnit(ctx context.Context, u unit, src, target string, out io.Writer, step string) error {
	start := time.Now()
	fmt.Fprintf(out, "%s: building %s (about %s the first time on two cores, seconds when compiled before)\n", step, strings.Join(u.programs(), ", "), u.expect)
	tmp, err := os.MkdirTemp(filepath.Dir(target), ".tmp-"+u.name+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	module := filepath.Join(src, u.module)
	args := append([]string{"build", "-v", "-buildvcs=false", "-ldflags", u.ldflags, "-o", tmp + "/"}, u.packages...)
	if err := runWithProgress(ctx, goCommand(module, args...), out, step, start); err != nil {
		return fmt.Errorf("building %s (run the same command again to go on where it stopped): %w", u.name, err)
	}
	if err := nameProgram(u, tmp); err != nil {
		return err
	}
	if err := u.copyManifests(module, filepath.Join(tmp, "manifests")); err != nil {
		return err
	}
	if err := os.Rename(tmp, target); err != nil {
		return fmt.Errorf("putting %s in its place: %w", u.name, err)
	}
	fmt.Fprintf(out, "%s: done in %s\n", step, time.Since(start).Round(time.Second))
	return nil
}

// nameProgram gives a program its name where go named it after its module's last word.
func nameProgram(u unit, dir string) error {
	for i, name := range u.programs() {
		if fileExists(filepath.Join(dir, name)) {
			continue
		}
		built := map[string]string{"etcd": "server", "pause": "pause"}[name]
		if built == "" {
			return fmt.Errorf("building %s gave no program %s", u.packages[i], name)
		}
		if err := os.Rename(filepath.Join(dir, built), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// runWithProgress runs `go build -v`, which names each package as it is compiled, and tells how far it is.
func runWithProgress(ctx context.Context, cmd *exec.Cmd, out io.Writer, step string, start time.Time) error {
	pr, pw := io.Pipe()
	cmd.Stdout, cmd.Stderr = pw, pw
	// its own group: the compilers that it started must end with it
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting go: %w", err)
	}
	var (
		mu    sync.Mutex
		last  string
		count int
		tail  bytes.Buffer // what go said that is no package's name: errors
		read  = make(chan struct{})
	)
	go func() {
		defer close(read)
		s := bufio.NewScanner(pr)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			line := s.Text()
			mu.Lock()
			switch {
			case strings.HasPrefix(line, "go: downloading "):
				last = line[4:]
			case !strings.ContainsAny(line, " \t:"):
				last, count = "last "+line, count+1
			case tail.Len() < 1<<14:
				tail.WriteString("\n" + line)
			}
			mu.Unlock()
		}
		_, _ = io.Copy(io.Discard, pr)
	}()
	done := make(chan error, 1)
	go func() { err := cmd.Wait(); pw.Close(); <-read; done <- err }()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	stop := ctx.Done()
	for {
		select {
		case err := <-done:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				return fmt.Errorf("%w:%s", err, tail.String())
			}
			return nil
		case <-stop:
			stop = nil
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		case <-tick.C:
			mu.Lock()
			fmt.Fprintf(out, "%s: %s, %d packages compiled, %s\n", step, time.Since(start).Round(time.Second), count, last)
			mu.Unlock()
		}
	}
}

// buildDir is the directory build/ next to this file.
func buildDir() (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok {
		if dir := filepath.Join(filepath.Dir(file), "build"); filepath.IsAbs(dir) && fileExists(dir) {
			return dir, nil
		}
	}
	// built with -trimpath: look for the module from the working directory
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/stillpoint-operator/stillpoint/test/cluster").Output()
	if err != nil {
		return "", fmt.Errorf("finding the sources of the cluster (run it inside the repository): %w", commandError(err))
	}
	return filepath.Join(strings.TrimSpace(string(out)), "build"), nil
}

func goVersion() (string, error) {
	out, err := exec.Command("go", "env", "GOVERSION").Output()
	if err != nil {
		return "", fmt.Errorf("the go tool is needed to build the cluster: %w", commandError(err))
	}
	return strings.TrimSpace(string(out)), nil
}

// lock takes a file lock, waiting for whoever holds it. The kernel gives it up when its holder dies.
func lock(ctx context.Context, path string, out io.Writer, holder string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	for said := false; ; said = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if !said {
			fmt.Fprintf(out, "waiting for %s to end (it holds %s)\n", holder, path)
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			f.Close()
			return nil, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// checkSpace fails if the file system of dir, which need not exist yet, has fewer free bytes than needed.
func checkSpace(dir string, need uint64, what string) error {
	for !fileExists(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return fmt.Errorf("asking for the free space of %s: %w", dir, err)
	}
	free := uint64(st.Bavail) * uint64(st.Bsize)
	if free < need {
		return fmt.Errorf("%s needs %.0f GiB of free space, but the file system of %s has %.1f GiB: free some, or choose another directory",
			what, gib(need), dir, gib(free))
	}
	return nil
}

func gib(b uint64) float64 { return float64(b) / (1 << 30) }

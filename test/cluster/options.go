// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// DefaultStateDir is where the state is unless STILLPOINT_STATE or Options.StateDir say otherwise.
	DefaultStateDir = "/var/lib/stillpoint-cluster"

	// The path of the longest unix socket below the state directory must fit into 107 characters.
	maxStateDir = 107 - len("/kubelet/plugins_registry/"+DriverName+"-reg.sock")

	// DriverName is the name of the CSI driver.
	DriverName = "image.csi.stillpoint.test"
	// ClassName is the name of the StorageClass, the VolumeSnapshotClass and the VolumeGroupSnapshotClass; each is the default.
	ClassName = "local"

	// PauseImage, ToolsImage and HostRootImage are always there. Use imagePullPolicy: Never.
	PauseImage = "stillpoint.test/pause:1"
	// ToolsImage has busybox and fsfreeze.
	ToolsImage = "stillpoint.test/tools:1"
	// HostRootImage is an empty root. With the machine's /usr mounted into it, every program of the machine runs in a pod.
	HostRootImage = "stillpoint.test/hostroot:1"
)

// Options say how the cluster is to be. The zero value is a good cluster.
type Options struct {
	// StateDir holds everything of a running cluster. Default: $STILLPOINT_STATE, else DefaultStateDir.
	// It must be short, since the paths of unix sockets are limited.
	StateDir string
	// CacheDir holds what is built once per machine. Default: $STILLPOINT_CACHE, else stillpoint in the user's cache directory.
	CacheDir string
	// SidecarQPS is how many API requests per second each CSI sidecar may send; the burst is twice that.
	// Default 200. The sidecars' own default is 5, which delays snapshots by seconds under load.
	SidecarQPS int
	// PoolSize is the size of the file that all volumes share, in bytes; it is sparse. Default 8 GiB.
	PoolSize int64
	// APIServerArgs are added to the API server's command line, for example --audit-log-path=...
	APIServerArgs []string
	// ExtraArgs are added to the command line of any component, by its name.
	ExtraArgs map[string][]string
	// Out takes a short line for every step. Default: standard error.
	Out io.Writer `json:"-"`
}

func (o Options) withDefaults() (Options, error) {
	o.StateDir = firstNonEmpty(o.StateDir, os.Getenv("STILLPOINT_STATE"), DefaultStateDir)
	abs, err := filepath.Abs(o.StateDir)
	if err != nil {
		return o, fmt.Errorf("finding the state directory: %w", err)
	}
	o.StateDir = abs
	if len(abs) > maxStateDir {
		return o, fmt.Errorf("the state directory %s has %d characters: at most %d are possible, since the sockets below it have limited paths",
			abs, len(abs), maxStateDir)
	}
	if filepath.Dir(abs) == abs || filepath.Dir(filepath.Dir(abs)) == filepath.Dir(abs) {
		return o, fmt.Errorf("the state directory %s is too near the root of the file system: down would remove it whole", abs)
	}
	if o.CacheDir, err = cacheDir(o.CacheDir); err != nil {
		return o, err
	}
	if o.SidecarQPS == 0 {
		o.SidecarQPS = 200
	}
	if o.PoolSize == 0 {
		o.PoolSize = 8 << 30
	}
	if o.Out == nil {
		o.Out = os.Stderr
	}
	return o, nil
}

func cacheDir(dir string) (string, error) {
	dir = firstNonEmpty(dir, os.Getenv("STILLPOINT_CACHE"))
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("finding a directory for the built programs (set STILLPOINT_CACHE): %w", err)
		}
		dir = filepath.Join(base, "stillpoint")
	}
	return filepath.Abs(dir)
}

func firstNonEmpty(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

// Cluster is a cluster on this machine, running or not.
type Cluster struct {
	opts Options
	bins map[string]string // directory of each build unit, by the unit's name
}

// Attach returns the cluster whose state is in stateDir; "" means the one that was started on this machine, else
// the default. It starts nothing, and fails if there is no such cluster.
func Attach(stateDir string) (*Cluster, error) {
	c, err := Open(stateDir)
	if err == nil && !fileExists(c.path("options.json")) {
		return nil, fmt.Errorf("there is no cluster in %s: start one with localcluster up", c.opts.StateDir)
	}
	return c, err
}

// Open is Attach for a cluster that may be half gone, or gone: what Down and Leftovers work on.
func Open(stateDir string) (*Cluster, error) {
	if stateDir == "" && os.Getenv("STILLPOINT_STATE") == "" {
		r, err := readMachineRecord()
		if err != nil {
			return nil, err
		}
		if r != nil {
			stateDir = r.StateDir
		}
	}
	o, err := Options{StateDir: stateDir}.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cluster{opts: o}
	if err := readJSON(c.path("options.json"), &c.opts); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	c.opts.StateDir = o.StateDir
	if err := readJSON(c.path("units.json"), &c.bins); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return c, nil
}

// StateDir is the directory of everything that this cluster keeps.
func (c *Cluster) StateDir() string { return c.opts.StateDir }

// Kubeconfig is the path of the kubeconfig of user admin, group system:masters. Where the environment names a proxy,
// clients need NO_PROXY=198.18.0.0/15.
func (c *Cluster) Kubeconfig() string { return c.path("pki", "admin.kubeconfig") }

// BinDir is a directory with all programs of the cluster, kubectl among them.
func (c *Cluster) BinDir() string { return c.path("bin") }

// Bin is the path of one program: kubectl, ctr, etcd, ...
func (c *Cluster) Bin(name string) string { return c.path("bin", name) }

// LogFile is the path of a component's log.
func (c *Cluster) LogFile(component string) string { return c.path("log", component+".log") }

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.opts.StateDir}, elem...)...)
}

// resolve finds the real path of a program: what a process is started as must tell its version.
func (c *Cluster) resolve(name string) (string, error) {
	p, err := filepath.EvalSymlinks(c.Bin(name))
	if err != nil {
		return "", fmt.Errorf("finding the program %s (run localcluster up again): %w", name, err)
	}
	return p, nil
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// writeJSON replaces the file in one step.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, append(b, '\n'), 0o644)
}

// writeFile replaces the file in one step: a reader sees the old or the new content, never half of it.
func writeFile(path string, b []byte, mode os.FileMode) error {
	tmp := fmt.Sprintf("%s.%d.tmp", path, os.Getpid())
	if err := os.WriteFile(tmp, b, mode); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

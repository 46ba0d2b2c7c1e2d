// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stillpoint-operator/stillpoint/test/process"
)

// cgroupName is the control group, in every hierarchy, that all pods are under.
const cgroupName = "stillpoint"

const cniNetwork = "stillpoint"

func (c *Cluster) containerdSocket() string { return c.path("containerd", "containerd.sock") }

// writeNodeConfig writes the configuration files of containerd, CNI, kubelet and kube-proxy.
func (c *Cluster) writeNodeConfig() error {
	runc, err := exec.LookPath("runc")
	if err != nil {
		return fmt.Errorf("finding runc: %w", err)
	}
	replace := strings.NewReplacer(
		"{{state}}", c.opts.StateDir, "{{runc}}", runc, "{{node-ip}}", nodeIP, "{{node}}", NodeName, "{{pods}}", podCIDR, "{{all-pods}}", podRange,
		"{{bridge}}", bridgeLink, "{{pause}}", PauseImage, "{{cgroup}}", "/"+cgroupName, "{{network}}", cniNetwork)
	for name, text := range map[string]string{
		"containerd/config.toml":       containerdConfig,
		"cni/10-stillpoint.conflist":   cniConfig,
		"kubelet.yaml":                 kubeletConfig,
		"kube-proxy.yaml":              kubeProxyConfig,
		"resolv.conf":                  "",
		"kubelet/plugins_registry/.do": "",
	} {
		if err := os.MkdirAll(filepath.Dir(c.path(name)), 0o755); err != nil {
			return err
		}
		if err := writeFile(c.path(name), []byte(replace.Replace(text)), 0o644); err != nil {
			return err
		}
	}
	return os.MkdirAll(c.path("podlogs"), 0o755)
}

const containerdConfig = `version = 3
root = "{{state}}/containerd/root"
state = "{{state}}/containerd/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs", "io.containerd.differ.v1.erofs",
  "io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "{{state}}/containerd/containerd.sock"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{{pause}}"
[plugins.'io.containerd.cri.v1.runtime']
  # a machine may not let us lower an OOM score below our own
  restrict_oom_score_adj = true
  # under the state directory, so that they are found and removed with everything else
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{{state}}/bin"]
    conf_dir = "{{state}}/cni"
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = "{{runc}}"
        Root = "{{state}}/runc"
        SystemdCgroup = false
`

const cniConfig = `{"cniVersion": "1.0.0", "name": "{{network}}", "plugins": [{
  "type": "bridge", "bridge": "{{bridge}}", "isGateway": true, "ipMasq": false, "hairpinMode": true,
  "ipam": {"type": "host-local", "dataDir": "{{state}}/cni-ipam", "ranges": [[{"subnet": "{{pods}}"}]], "routes": [{"dst": "0.0.0.0/0"}]}
}]}
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {{node-ip}}
port: 10250
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: "{{state}}/pki/ca.crt"}}
authorization: {mode: Webhook}
tlsCertFile: "{{state}}/pki/kubelet-server.crt"
tlsPrivateKeyFile: "{{state}}/pki/kubelet-server.key"
containerRuntimeEndpoint: "unix://{{state}}/containerd/containerd.sock"
cgroupDriver: cgroupfs
cgroupRoot: "{{cgroup}}"
failCgroupV1: false
failSwapOn: false
podLogsDir: "{{state}}/podlogs"
volumePluginDir: "{{state}}/kubelet-volumeplugins"
clusterDomain: cluster.local
# there is no DNS: on the pod's own loopback a question is refused at once
clusterDNS: ["127.0.0.1"]
resolvConf: "{{state}}/resolv.conf"
healthzBindAddress: 127.0.0.1
evictionHard: {memory.available: 50Mi, nodefs.available: "1%", imagefs.available: "1%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
shutdownGracePeriod: 0s
`

const kubeProxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: "{{state}}/pki/kube-proxy.kubeconfig"}
hostnameOverride: {{node}}
mode: iptables
clusterCIDR: {{all-pods}}
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
metricsBindAddress: 127.0.0.1:10249
healthzBindAddress: 127.0.0.1:10256
`

// cgroupMounts lists where control groups are mounted; v2 tells which of them is the unified hierarchy.
func cgroupMounts() (mounts []string, v2 string, err error) {
	lines, err := readLines("/proc/mounts")
	if err != nil {
		return nil, "", err
	}
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) < 3 || (f[2] != "cgroup" && f[2] != "cgroup2") || slices.Contains(mounts, f[1]) {
			continue
		}
		mounts = append(mounts, f[1])
		if f[2] == "cgroup2" {
			v2 = f[1]
		}
	}
	return mounts, v2, nil
}

// ensureCgroups makes the control group of all pods: the kubelet wants its root to exist.
func ensureCgroups() error {
	mounts, v2, err := cgroupMounts()
	if err != nil {
		return err
	}
	if len(mounts) == 0 {
		return errors.New("no control groups are mounted under /sys/fs/cgroup: the kubelet cannot work without them")
	}
	for _, m := range mounts {
		dir := filepath.Join(m, cgroupName)
		if m == v2 {
			delegate(m)
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("making the pods' control group: %w", err)
		}
		if m == v2 {
			delegate(dir)
		}
		// in a new group of the cpuset hierarchy nothing can run until these are set
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			b, err := os.ReadFile(filepath.Join(m, file))
			if err != nil || m == v2 {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), b, 0o644); err != nil {
				return fmt.Errorf("preparing the pods' control group: %w", err)
			}
		}
	}
	return nil
}

// delegate lets the children of a v2 group use its controllers. What is not possible the kubelet reports better.
func delegate(dir string) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for _, controller := range strings.Fields(string(b)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
	}
}

// cgroupDirs lists the pods' control groups, children before their parents.
func cgroupDirs() ([]string, error) {
	mounts, _, err := cgroupMounts()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, m := range mounts {
		root := filepath.Join(m, cgroupName)
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it went while we looked
			}
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Reverse(dirs)
	return dirs, nil
}

// cgroupProcesses lists the processes of all pods.
func cgroupProcesses() ([]process.Process, error) {
	dirs, err := cgroupDirs()
	if err != nil {
		return nil, err
	}
	seen := map[int]bool{}
	var found []process.Process
	for _, d := range dirs {
		lines, err := readLines(filepath.Join(d, "cgroup.procs"))
		if err != nil {
			continue // the group went, or it is one that cannot hold processes
		}
		for _, line := range lines {
			var pid int
			if _, err := fmt.Sscan(line, &pid); err != nil || seen[pid] {
				continue
			}
			seen[pid] = true
			if p, ok := process.Of(pid); ok {
				found = append(found, p)
			}
		}
	}
	return found, nil
}

func readLines(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var lines []string
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		lines = append(lines, s.Text())
	}
	return lines, s.Err()
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

const (
	// NodeName is the name of the only node.
	NodeName = "node-1"
	// ServerURL is where the API server is reached, from the machine and from the namespace.
	ServerURL = "https://" + nodeIP + ":6443"
	// HostIP is the machine's address as pods and the API server see it, for example for a webhook of a test.
	HostIP = "198.18.0.2"

	apiPort     = 6443
	netnsName   = "stillpoint"
	netnsPath   = "/run/netns/" + netnsName
	hostLink    = "stillpoint0"
	bridgeLink  = "pods0"
	nodeIP      = "198.18.0.1"
	linkPrefix  = "/30"
	everything  = "198.18.0.0/15"
	serviceCIDR = "198.18.1.0/24"
	serviceIP   = "198.18.1.1"
	podRange    = "198.19.0.0/16"
	podCIDR     = "198.19.0.0/24"         // of the only node
	etcdURL     = "http://127.0.0.1:2379" // the namespace's loopback, not the machine's
	etcdPeerURL = "http://127.0.0.1:2380"
)

// ensureNetwork makes the namespace and the cable to it. Each line is skipped when its result is there already.
func ensureNetwork(ctx context.Context) error {
	steps := []struct{ check, make string }{
		{"test -e " + netnsPath, "ip netns add " + netnsName},
		{"", "ip -n " + netnsName + " link set lo up"},
		{"ip link show " + hostLink, "ip link add " + hostLink + " type veth peer name eth0 netns " + netnsName},
		{"", "ip addr replace " + HostIP + linkPrefix + " dev " + hostLink},
		{"", "ip -n " + netnsName + " addr replace " + nodeIP + linkPrefix + " dev eth0"},
		{"", "ip link set " + hostLink + " up"},
		{"", "ip -n " + netnsName + " link set eth0 up"},
		// pods and services are reached through the node
		{"", "ip route replace " + everything + " via " + nodeIP + " dev " + hostLink},
		// a process of the node that calls a service needs some route, else the packet is refused before kube-proxy's
		// rules see it; there is no default route: what goes elsewhere fails at once
		{"", "ip -n " + netnsName + " route replace " + serviceCIDR + " via " + HostIP + " dev eth0"},
	}
	for _, s := range steps {
		if s.check != "" && quiet(ctx, strings.Fields(s.check)...) == nil {
			continue
		}
		if err := quiet(ctx, strings.Fields(s.make)...); err != nil {
			return fmt.Errorf("making the cluster's network: %w", err)
		}
	}
	return nil
}

// removeNetwork takes the namespace and the cable away. Deleting one end of the cable deletes both.
func removeNetwork(ctx context.Context) error {
	if quiet(ctx, "ip", "link", "show", hostLink) == nil {
		if err := quiet(ctx, "ip", "link", "del", hostLink); err != nil {
			return err
		}
	}
	if fileExists(netnsPath) {
		return quiet(ctx, "ip", "netns", "del", netnsName)
	}
	return nil
}

// netnsInode identifies the namespace, as /proc/<pid>/ns/net does; 0 means that it is not there.
func netnsInode() uint64 { return inode(netnsPath) }

func inode(path string) uint64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return st.Ino
}

// quiet runs a program and keeps what it says for the error.
func quiet(ctx context.Context, argv ...string) error {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// output runs a program and returns its lines.
func output(ctx context.Context, argv ...string) ([]string, error) {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(argv, " "), commandError(err))
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// needed names the programs that a cluster uses, and the Debian package of each.
var needed = []struct{ program, debian string }{
	{"runc", "runc"}, {"busybox", "busybox-static"}, {"mkfs.btrfs", "btrfs-progs"}, {"btrfs", "btrfs-progs"},
	{"mkfs.ext4", "e2fsprogs"}, {"fsfreeze", "util-linux"}, {"losetup", "mount"}, {"mount", "mount"}, {"umount", "mount"},
	{"nsenter", "util-linux"}, {"mountpoint", "util-linux"}, {"blkid", "util-linux"},
	{"iptables", "iptables"}, {"conntrack", "conntrack"}, {"ip", "iproute2"}, {"ps", "procps"}, {"modprobe", "kmod"}, {"ldd", "libc-bin"},
}

// EnsurePrograms installs the Debian packages of the programs that a cluster needs and that are missing, and says
// which. Without apt-get it fails and names the programs.
func EnsurePrograms(ctx context.Context, out io.Writer) error {
	var programs, packages []string
	for _, n := range needed {
		if _, err := exec.LookPath(n.program); err == nil {
			continue
		}
		programs = append(programs, n.program)
		if !slices.Contains(packages, n.debian) {
			packages = append(packages, n.debian)
		}
	}
	if len(programs) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("these programs are needed and missing: %s. There is no apt-get to install them with: install them and run this again",
			strings.Join(programs, ", "))
	}
	return InstallPackages(ctx, out, packages...)
}

const (
	policyFile = "/usr/sbin/policy-rc.d"
	policyMark = "# made by the Stillpoint test cluster for one installation"
	pgConfig   = "/etc/postgresql-common/createcluster.conf"
)

// InstallPackages installs Debian packages, and starts none of their services: a database of this machine is only a
// program that pods run. Packages that are installed stay as they are.
func InstallPackages(ctx context.Context, out io.Writer, packages ...string) (err error) {
	var missing []string
	for _, p := range packages {
		status, _ := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${db:Status-Status}", p).Output()
		if string(status) != "installed" {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("installing the Debian packages %s needs root", strings.Join(missing, ", "))
	}
	fmt.Fprintf(out, "installing Debian packages: %s\n", strings.Join(missing, " "))
	forget, err := forbidServices()
	if err != nil {
		return fmt.Errorf("keeping services from being started: %w", err)
	}
	defer func() { err = errors.Join(err, forget()) }()
	if err := apt(ctx, "update", "-q"); err != nil {
		// an old list of packages may still do
		fmt.Fprintf(out, "apt-get update failed, going on with the lists that are here: %v\n", err)
	}
	install := []string{"install", "-y", "-q", "--no-install-recommends"}
	if slices.ContainsFunc(missing, func(p string) bool { return strings.HasPrefix(p, "postgresql") }) {
		// it must be told before a server package comes: that one makes and would start a database
		if err := apt(ctx, append(install, "postgresql-common")...); err != nil {
			return err
		}
		if err := forbidMainCluster(); err != nil {
			return err
		}
	}
	return apt(ctx, append(install, missing...)...)
}

// forbidServices makes every package leave its services alone, until forget is called. An answer that the
// machine's owner gave is kept, whatever it is.
func forbidServices() (forget func() error, err error) {
	b, err := os.ReadFile(policyFile)
	if err == nil && !bytes.Contains(b, []byte(policyMark)) {
		return func() error { return nil }, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.WriteFile(policyFile, []byte("#!/bin/sh\n"+policyMark+"\nexit 101\n"), 0o755); err != nil {
		return nil, err
	}
	return func() error { return os.Remove(policyFile) }, nil
}

var createMain = regexp.MustCompile(`(?m)^#?\s*create_main_cluster\s*=.*$`)

// forbidMainCluster keeps PostgreSQL's packages from making a database on the machine.
func forbidMainCluster() error {
	b, err := os.ReadFile(pgConfig)
	if err != nil {
		return err
	}
	return os.WriteFile(pgConfig, withoutMainCluster(b), 0o644)
}

func withoutMainCluster(config []byte) []byte {
	const line = "create_main_cluster = false"
	if createMain.Match(config) {
		return createMain.ReplaceAll(config, []byte(line))
	}
	return append(config, []byte("\n"+line+"\n")...)
}

func apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("apt-get %s: %w:\n%s", strings.Join(args, " "), err, strings.Join(lines[max(0, len(lines)-10):], "\n"))
	}
	return nil
}

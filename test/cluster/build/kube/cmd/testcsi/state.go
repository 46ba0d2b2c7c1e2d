// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type volume struct {
	ID, Name string
	Claim    string // "namespace/name" of the claim it was made for, if the provisioner said so
	Size     int64
}

type snapshot struct {
	ID, Name, VolumeID, GroupID string
	File                        string // relative to the pool
	Size                        int64
	Created, ReadyAt            time.Time
}

type group struct {
	ID, Name  string
	Created   time.Time
	Snapshots []string
}

type state struct {
	Seq       int
	Volumes   map[string]*volume
	Snapshots map[string]*snapshot
	Groups    map[string]*group
}

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedGroupControllerServer
	csi.UnimplementedNodeServer

	name, nodeID, pool, knobFile string

	mu       sync.Mutex
	st       state
	inFlight map[string]bool // names of snapshots being taken: a second call for one of them must not cut twice
}

// open prepares the pool and reads the state of an earlier process.
func (d *driver) open() error {
	d.st = state{Volumes: map[string]*volume{}, Snapshots: map[string]*snapshot{}, Groups: map[string]*group{}}
	b, err := os.ReadFile(d.stateFile())
	if err == nil {
		err = json.Unmarshal(b, &d.st)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading %s: %w", d.stateFile(), err)
	}
	for _, dir := range []string{"snaps", "groups"} {
		if err := os.MkdirAll(filepath.Join(d.pool, dir), 0o755); err != nil {
			return err
		}
	}
	vols := filepath.Join(d.pool, "vols")
	if _, err := os.Stat(vols); errors.Is(err, fs.ErrNotExist) {
		_, err = run("btrfs", "subvolume", "create", vols)
		return err
	}
	return nil
}

func (d *driver) stateFile() string { return filepath.Join(d.pool, "state.json") }

func (d *driver) image(volumeID string) string {
	return filepath.Join(d.pool, "vols", volumeID+".img")
}

// save writes the state. A driver that cannot remember is of no use to a test: it ends.
func (d *driver) save() {
	b, err := json.MarshalIndent(d.st, "", " ")
	if err == nil {
		err = os.WriteFile(d.stateFile()+".tmp", b, 0o600)
	}
	if err == nil {
		err = os.Rename(d.stateFile()+".tmp", d.stateFile())
	}
	if err != nil {
		log.Fatalf("writing %s: %v", d.stateFile(), err)
	}
}

func (d *driver) newID(kind string) string {
	d.st.Seq++
	return fmt.Sprintf("%s-%d", kind, d.st.Seq)
}

// begin marks a snapshot's name as being worked on; false means that another call is at it.
func (d *driver) begin(name string) bool {
	if d.inFlight[name] {
		return false
	}
	d.inFlight[name] = true
	return true
}

func (d *driver) end(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.inFlight, name)
}

func run(program string, args ...string) (string, error) {
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		return "", status.Errorf(codes.Internal, "%s %s: %v: %s", program, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// reflink makes dst share the blocks of src. The kernel writes src's dirty pages first.
func reflink(src, dst string) error {
	s, err := os.Open(src)
	if err != nil {
		return err
	}
	defer s.Close()
	t, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := unix.IoctlFileClone(int(t.Fd()), int(s.Fd())); err != nil {
		t.Close()
		os.Remove(dst)
		return fmt.Errorf("cloning %s: %w", src, err)
	}
	return t.Close()
}

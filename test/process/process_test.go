// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestOnlyTheProcessThatWasLaunchedIsEnded(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc here")
	}
	log := filepath.Join(t.TempDir(), "log")
	p, err := Launch(exec.Command("sh", "-c", "echo it runs; exec sleep 60"), log)
	if err != nil {
		t.Fatal(err)
	}
	if none := (Process{}); none.Alive() {
		t.Error("no process is taken for one")
	}
	later, earlier := p, p
	later.Start++
	earlier.Boot = "another"
	for _, other := range []Process{later, earlier} {
		if other.Alive() {
			t.Errorf("%+v was taken for %+v", p, other)
		}
		if err := other.End(0); err != nil || !p.Alive() {
			t.Fatalf("it was ended in place of another: %v", err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(pollEvery) {
		if b, err := os.ReadFile(log); err == nil && string(b) == "it runs\n" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("what it says is not in its log")
		}
	}
	if err := p.End(5 * time.Second); err != nil || p.Alive() {
		t.Errorf("ending it: %v, alive %v", err, p.Alive())
	}
}

func TestAProgramThatDoesNotExistIsNotLaunched(t *testing.T) {
	if _, err := Launch(exec.Command("/does/not/exist"), filepath.Join(t.TempDir(), "log")); err == nil {
		t.Error("it was launched")
	}
}

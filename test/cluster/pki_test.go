// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPKI(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	now := time.Now()
	if err := writePKI(dir, "https://192.0.2.1:6443", now); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parseCert(t, read(t, dir, "ca.crt")))
	verify := func(name string, usage x509.ExtKeyUsage, host string) error {
		_, err := parseCert(t, read(t, dir, name)).Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}, DNSName: host})
		return err
	}

	t.Run("a server's certificate is good for every name that it is called by", func(t *testing.T) {
		for _, host := range []string{nodeIP, serviceIP, "127.0.0.1", "kubernetes.default.svc"} {
			if err := verify("apiserver.crt", x509.ExtKeyUsageServerAuth, host); err != nil {
				t.Error(err)
			}
		}
		if err := verify("kubelet-server.crt", x509.ExtKeyUsageServerAuth, nodeIP); err != nil {
			t.Error(err)
		}
	})
	t.Run("a client's certificate is no server's and names user and group", func(t *testing.T) {
		if err := verify("admin.crt", x509.ExtKeyUsageClientAuth, ""); err != nil {
			t.Error(err)
		}
		if verify("admin.crt", x509.ExtKeyUsageServerAuth, "") == nil {
			t.Error("the admin's certificate can serve")
		}
		if s := parseCert(t, read(t, dir, "admin.crt")).Subject; s.CommonName != "admin" || s.Organization[0] != "system:masters" {
			t.Errorf("the admin is %v", s)
		}
	})
	t.Run("keys are for their owner only", func(t *testing.T) {
		info, err := os.Stat(filepath.Join(dir, "ca.key"))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("ca.key has mode %v", info.Mode())
		}
	})
	t.Run("a second call changes nothing", func(t *testing.T) {
		before := read(t, dir, "ca.crt")
		if err := writePKI(dir, "https://192.0.2.1:6443", now); err != nil {
			t.Fatal(err)
		}
		if string(before) != string(read(t, dir, "ca.crt")) {
			t.Error("there is a new authority")
		}
	})
	t.Run("after an interrupted call the set is made anew", func(t *testing.T) {
		before := read(t, dir, "ca.crt")
		if err := os.Remove(filepath.Join(dir, "complete")); err != nil {
			t.Fatal(err)
		}
		if err := writePKI(dir, "https://192.0.2.1:6443", now); err != nil {
			t.Fatal(err)
		}
		if string(before) == string(read(t, dir, "ca.crt")) {
			t.Error("half a set was kept")
		}
	})
}

func TestUserKubeconfig(t *testing.T) {
	c := &Cluster{opts: Options{StateDir: t.TempDir()}}
	if err := writePKI(c.path("pki"), ServerURL, time.Now()); err != nil {
		t.Fatal(err)
	}
	path, err := c.CreateUserKubeconfig("team/alice", "team", "readers")
	if err != nil {
		t.Fatal(err)
	}
	text := string(read(t, filepath.Dir(path), filepath.Base(path)))
	for _, want := range []string{"server: " + ServerURL, `user: "team/alice"`, "client-key-data: "} {
		if !strings.Contains(text, want) {
			t.Errorf("the kubeconfig lacks %q:\n%s", want, text)
		}
	}
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parseCert(t *testing.T, b []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(b)
	if block == nil {
		t.Fatal("no PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

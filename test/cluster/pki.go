// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Certificates of a cluster for tests live as long as anyone may want to keep its data.
const certLifetime = 10 * 365 * 24 * time.Hour

// authority signs the cluster's certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// certSpec describes one certificate: one of server or client use, never both.
type certSpec struct {
	cn     string
	orgs   []string
	server bool
	dns    []string
	ips    []string
}

func newAuthority(now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stillpoint-cluster-ca"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certLifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert: cert, key: key}, err
}

// issue makes a key and a certificate for it, both PEM.
func (a *authority) issue(s certSpec, now time.Time) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: s.cn, Organization: s.orgs},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certLifetime), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, DNSNames: s.dns,
	}
	if s.server {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, ip := range s.ips {
		t.IPAddresses = append(t.IPAddresses, net.ParseIP(ip))
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("signing the certificate of %s: %w", s.cn, err)
	}
	keyPEM, err = encodeKey(key)
	return encodePEM("CERTIFICATE", der), keyPEM, err
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return encodePEM("PRIVATE KEY", der), nil
}

func decodePEM(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("%s holds nothing in PEM form", path)
	}
	return block.Bytes, nil
}

func readAuthority(dir string) (*authority, error) {
	der, err := decodePEM(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	if der, err = decodePEM(filepath.Join(dir, "ca.key")); err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key of the authority cannot sign")
	}
	return &authority{cert: cert, key: signer}, nil
}

// serverCerts and clientCerts are all certificates of the cluster, by file name.
func serverCerts() map[string]certSpec {
	return map[string]certSpec{
		"apiserver": {
			cn: "kube-apiserver", server: true,
			dns: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
			ips: []string{nodeIP, serviceIP, "127.0.0.1"},
		},
		"kubelet-server": {cn: "system:node:" + NodeName, server: true, dns: []string{NodeName}, ips: []string{nodeIP, "127.0.0.1"}},
	}
}

func clientCerts() map[string]certSpec {
	return map[string]certSpec{
		"admin":                    {cn: "admin", orgs: []string{"system:masters"}},
		"kube-controller-manager":  {cn: "system:kube-controller-manager"},
		"kube-scheduler":           {cn: "system:kube-scheduler"},
		"kubelet":                  {cn: "system:node:" + NodeName, orgs: []string{"system:nodes"}},
		"kube-proxy":               {cn: "system:kube-proxy"},
		"snapshot-controller":      {cn: "snapshot-controller"},
		"csi-sidecars":             {cn: "csi-sidecars"},
		"apiserver-kubelet-client": {cn: "kube-apiserver-kubelet-client"},
		"front-proxy":              {cn: "front-proxy"},
	}
}

// writePKI makes all keys, certificates and kubeconfigs in dir, unless they are all there already.
func writePKI(dir, server string, now time.Time) error {
	done := filepath.Join(dir, "complete")
	if _, err := os.Stat(done); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	a, err := newAuthority(now)
	if err != nil {
		return fmt.Errorf("making the authority: %w", err)
	}
	caKey, err := encodeKey(a.key)
	if err != nil {
		return err
	}
	files := map[string][]byte{"ca.crt": encodePEM("CERTIFICATE", a.cert.Raw), "ca.key": caKey}
	for name, spec := range serverCerts() {
		if files[name+".crt"], files[name+".key"], err = a.issue(spec, now); err != nil {
			return err
		}
	}
	for name, spec := range clientCerts() {
		if files[name+".crt"], files[name+".key"], err = a.issue(spec, now); err != nil {
			return err
		}
		files[name+".kubeconfig"] = kubeconfig(server, name, files["ca.crt"], files[name+".crt"], files[name+".key"])
	}
	sa, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	if files["sa.key"], err = encodeKey(sa); err != nil {
		return err
	}
	pub, err := x509.MarshalPKIXPublicKey(sa.Public())
	if err != nil {
		return err
	}
	files["sa.pub"] = encodePEM("PUBLIC KEY", pub)
	for name, b := range files {
		if err := writeFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	// last: an interrupted run leaves no half set that a later one takes for whole
	return writeFile(done, nil, 0o600)
}

// kubeconfig carries its certificates in itself, so the file can be copied anywhere.
func kubeconfig(server, user string, ca, cert, key []byte) []byte {
	b64 := base64.StdEncoding.EncodeToString
	return []byte(strings.Join([]string{
		"apiVersion: v1",
		"kind: Config",
		"current-context: stillpoint",
		"clusters:",
		"- name: stillpoint",
		"  cluster:",
		"    server: " + server,
		"    certificate-authority-data: " + b64(ca),
		"users:",
		"- name: " + fmt.Sprintf("%q", user),
		"  user:",
		"    client-certificate-data: " + b64(cert),
		"    client-key-data: " + b64(key),
		"contexts:",
		"- name: stillpoint",
		"  context:",
		"    cluster: stillpoint",
		"    user: " + fmt.Sprintf("%q", user),
		"",
	}, "\n"))
}

// CreateUserKubeconfig makes a kubeconfig for the user cn in the groups orgs and returns its path. The user may do
// what RBAC says of these names and nothing else. A second call for the same user makes a new key.
func (c *Cluster) CreateUserKubeconfig(cn string, orgs ...string) (string, error) {
	a, err := readAuthority(c.path("pki"))
	if err != nil {
		return "", fmt.Errorf("reading the cluster's authority: %w", err)
	}
	cert, key, err := a.issue(certSpec{cn: cn, orgs: orgs}, time.Now())
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(c.path("users"), 0o700); err != nil {
		return "", err
	}
	name := strings.Map(func(r rune) rune {
		if r == '/' || r == ':' || r == 0 { // a colon separates files in KUBECONFIG
			return '_'
		}
		return r
	}, cn)
	path := c.path("users", name+".kubeconfig")
	return path, writeFile(path, kubeconfig(ServerURL, cn, encodePEM("CERTIFICATE", a.cert.Raw), cert, key), 0o600)
}

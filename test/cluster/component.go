// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
)

// component is one process of the cluster.
type component struct {
	name string
	argv []string // the first word is the name of a program in BinDir
	env  []string
	// ready answers nil when the component serves; without it, running is enough.
	ready func(context.Context) error
}

// ComponentNames are the names that StopComponent, KillComponent, StartComponent, Pause and Resume know.
func ComponentNames() []string {
	return []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "testcsi", "snapshot-controller",
		"csi-snapshotter", "csi-provisioner", "containerd", "kubelet", "kube-proxy",
	}
}

// components are in the order of ComponentNames, which is the order in which they can start.
func (c *Cluster) components() []component {
	pki := func(name string) string { return c.path("pki", name) }
	asUser := func(name string) []string {
		k := pki(name + ".kubeconfig")
		return []string{"--kubeconfig=" + k, "--authentication-kubeconfig=" + k, "--authorization-kubeconfig=" + k}
	}
	qps := fmt.Sprintf("--kube-api-qps=%d", c.opts.SidecarQPS)
	burst := fmt.Sprintf("--kube-api-burst=%d", 2*c.opts.SidecarQPS)
	csi := c.path("csi", "csi.sock")
	sidecar := func(name string, more ...string) component {
		argv := []string{
			name, "--kubeconfig=" + pki("csi-sidecars.kubeconfig"), "--csi-address=" + csi,
			"--leader-election=false", "--extra-create-metadata", qps, burst,
		}
		return component{name: name, argv: append(argv, more...), env: []string{"POD_NAMESPACE=kube-system"}}
	}
	all := []component{
		{name: "etcd", argv: []string{
			"etcd", "--name=stillpoint", "--data-dir=" + c.path("etcd"),
			"--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL,
			"--listen-peer-urls=" + etcdPeerURL, "--initial-advertise-peer-urls=" + etcdPeerURL,
			"--initial-cluster=stillpoint=" + etcdPeerURL,
			// no test survives a power cut anyway, and syncing makes every write slow
			"--unsafe-no-fsync", "--log-level=warn",
		}},
		{name: "kube-apiserver", argv: c.apiServer(pki), ready: c.apiReady},
		{name: "kube-controller-manager", argv: append([]string{
			"kube-controller-manager", "--leader-elect=false", "--bind-address=127.0.0.1",
			"--service-account-private-key-file=" + pki("sa.key"), "--root-ca-file=" + pki("ca.crt"),
			"--cluster-signing-cert-file=" + pki("ca.crt"), "--cluster-signing-key-file=" + pki("ca.key"),
			"--use-service-account-credentials=true", "--allocate-node-cidrs=true", "--cluster-cidr=" + podRange, "--node-cidr-mask-size=24",
			"--service-cluster-ip-range=" + serviceCIDR,
		}, asUser("kube-controller-manager")...)},
		{name: "kube-scheduler", argv: append([]string{"kube-scheduler", "--leader-elect=false", "--bind-address=127.0.0.1"}, asUser("kube-scheduler")...)},
		{name: "testcsi", argv: []string{
			"testcsi", "--driver-name=" + DriverName, "--endpoint=" + csi, "--node-id=" + NodeName, "--pool=" + c.path("pool"),
			"--knobs=" + c.knobsFile(), "--registration-socket=" + c.path("kubelet", "plugins_registry", DriverName+"-reg.sock"),
		}, ready: func(context.Context) error { return socketServes(csi) }},
		{name: "snapshot-controller", argv: []string{
			"snapshot-controller", "--kubeconfig=" + pki("snapshot-controller.kubeconfig"), "--leader-election=false", qps, burst,
		}},
		sidecar("csi-snapshotter"),
		sidecar("csi-provisioner", "--default-fstype=ext4"),
		{name: "containerd", argv: []string{"containerd", "--config=" + c.path("containerd", "config.toml")}, ready: c.containerdReady},
		{name: "kubelet", argv: []string{
			"kubelet", "--config=" + c.path("kubelet.yaml"), "--kubeconfig=" + pki("kubelet.kubeconfig"), "--hostname-override=" + NodeName,
			"--root-dir=" + c.path("kubelet"), "--cert-dir=" + c.path("kubelet-pki"), "--node-ip=" + nodeIP, "--v=2",
		}, ready: c.nodeReady},
		{name: "kube-proxy", argv: []string{"kube-proxy", "--config=" + c.path("kube-proxy.yaml")}},
	}
	for i := range all {
		all[i].argv = slices.Concat(all[i].argv, c.opts.ExtraArgs[all[i].name])
	}
	return all
}

func (c *Cluster) apiServer(pki func(string) string) []string {
	argv := []string{
		"kube-apiserver", "--etcd-servers=" + etcdURL, fmt.Sprintf("--secure-port=%d", apiPort),
		"--bind-address=0.0.0.0", "--advertise-address=" + nodeIP, "--service-cluster-ip-range=" + serviceCIDR,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true", "--anonymous-auth=true",
		"--client-ca-file=" + pki("ca.crt"), "--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + pki("sa.pub"), "--service-account-signing-key-file=" + pki("sa.key"),
		"--kubelet-client-certificate=" + pki("apiserver-kubelet-client.crt"), "--kubelet-client-key=" + pki("apiserver-kubelet-client.key"),
		"--kubelet-certificate-authority=" + pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP,Hostname",
		"--requestheader-client-ca-file=" + pki("ca.crt"), "--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + pki("front-proxy.crt"), "--proxy-client-key-file=" + pki("front-proxy.key"),
	}
	return append(argv, c.opts.APIServerArgs...)
}

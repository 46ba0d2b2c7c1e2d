// SPDX-License-Identifier: Apache-2.0

//go:build cluster

// These tests start the cluster if it does not run, and leave it running:
//
//	go test -tags cluster -count 1 ./test/cluster/
//
// With -short, those that kill or freeze parts of it are left out.
package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// smoke is one test's namespace in the cluster.
type smoke struct {
	*testing.T
	*Cluster
	ns string
}

func begin(t *testing.T) *smoke {
	t.Helper()
	c, err := Up(t.Context(), Options{Out: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	s := &smoke{T: t, Cluster: c, ns: fmt.Sprintf("smoke-%d", time.Now().UnixNano()%1e9)}
	s.must("create", "namespace", s.ns)
	t.Cleanup(func() {
		if out, err := s.try("", "delete", "namespace", s.ns, "--wait=false"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return s
}

// try runs kubectl in the test's namespace with stdin, and returns what it says on standard output.
func (s *smoke) try(stdin string, args ...string) (string, error) {
	return s.tryEnv(nil, stdin, args...)
}

func (s *smoke) tryEnv(env []string, stdin string, args ...string) (string, error) {
	cmd := exec.Command(s.Bin("kubectl"), append([]string{"--namespace", s.ns}, args...)...)
	cmd.Env = append(append(s.baseEnv(), "KUBECONFIG="+s.Kubeconfig()), env...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), commandError(err)
}

func (s *smoke) must(args ...string) string {
	s.Helper()
	return s.apply("", args...)
}

func (s *smoke) apply(stdin string, args ...string) string {
	s.Helper()
	out, err := s.try(stdin, args...)
	if err != nil {
		s.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// claim makes a claim; source is the rest of its spec, empty or with a data source.
func (s *smoke) claim(name, source string) {
	s.Helper()
	s.apply(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s, labels: {set: all}}, spec: {
		accessModes: [ReadWriteOnce], resources: {requests: {storage: 128Mi}}%s}}`, name, source), "apply", "-f", "-")
}

// pod runs a command with a claim at /data and waits until it is ready.
func (s *smoke) pod(name, claim, command string) {
	s.Helper()
	s.apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {terminationGracePeriodSeconds: 0,
		containers: [{name: c, image: "%s", imagePullPolicy: Never, command: [sh, -c, "%s"], securityContext: {privileged: true},
			volumeMounts: [{name: d, mountPath: /data}]}],
		volumes: [{name: d, persistentVolumeClaim: {claimName: %s}}]}}`, name, ToolsImage, command, claim), "apply", "-f", "-")
	s.must("wait", "pod/"+name, "--for=condition=Ready", "--timeout=60s")
}

const writer = "i=0; while :; do i=$((i+1)); echo $i >> /data/log; sleep 0.05; done"

func TestExec(t *testing.T) {
	s := begin(t)
	s.claim("data", "")
	s.pod("db", "data", "sleep 3600")
	for _, websocket := range []string{"true", "false"} {
		_, err := s.tryEnv([]string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=" + websocket}, "", "exec", "db", "--", "sh", "-c", "exit 7")
		if err == nil || !strings.Contains(err.Error(), "exit status 7") {
			t.Errorf("websocket=%s: exit code 7 came back as: %v", websocket, err)
		}
		out, err := s.tryEnv([]string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=" + websocket}, "through", "exec", "-i", "db", "--", "cat")
		if out != "through" || err != nil {
			t.Errorf("websocket=%s: standard input came back as %q, %v", websocket, out, err)
		}
	}

	t.Run("an ephemeral container can be used", func(t *testing.T) {
		var pod map[string]any
		if err := json.Unmarshal([]byte(s.must("get", "pod", "db", "-o", "json")), &pod); err != nil {
			t.Fatal(err)
		}
		pod["spec"].(map[string]any)["ephemeralContainers"] = []map[string]any{{
			"name": "e", "image": ToolsImage, "imagePullPolicy": "Never", "command": []string{"sleep", "3600"},
		}}
		b, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		s.apply(string(b), "replace", "--raw", "/api/v1/namespaces/"+s.ns+"/pods/db/ephemeralcontainers", "-f", "-")
		err = s.wait(t.Context(), "the ephemeral container", 20*time.Second, func(context.Context) error {
			_, err := s.try("", "exec", "db", "-c", "e", "--", "true")
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestSnapshotHoldsWhatWasFrozen(t *testing.T) {
	s := begin(t)
	s.claim("data", "")
	s.pod("db", "data", writer)
	s.must("exec", "db", "--", "fsfreeze", "--freeze", "/data")
	frozen := s.must("exec", "db", "--", "sh", "-c", "wc -l < /data/log")
	s.apply(`{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshot, metadata: {name: s}, spec: {source: {persistentVolumeClaimName: data}}}`,
		"apply", "-f", "-")
	s.must("wait", "volumesnapshot/s", "--for=jsonpath={.status.readyToUse}=true", "--timeout=60s")
	s.must("exec", "db", "--", "fsfreeze", "--unfreeze", "/data")
	s.claim("back", ", dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: s}")
	s.pod("back", "back", "sleep 3600")
	if restored := s.must("exec", "back", "--", "sh", "-c", "wc -l < /data/log"); restored != frozen {
		t.Errorf("frozen at line %s, restored at line %s", frozen, restored)
	}
}

func TestGroupSnapshot(t *testing.T) {
	s := begin(t)
	s.claim("data", "")
	s.claim("wal", "")
	s.must("wait", "pvc/data", "pvc/wal", "--for=jsonpath={.status.phase}=Bound", "--timeout=60s")
	s.apply(`{apiVersion: groupsnapshot.storage.k8s.io/v1, kind: VolumeGroupSnapshot, metadata: {name: g}, spec: {source: {selector: {matchLabels: {set: all}}}}}`,
		"apply", "-f", "-")
	s.must("wait", "volumegroupsnapshot/g", "--for=jsonpath={.status.readyToUse}=true", "--timeout=60s")
	err := s.wait(t.Context(), "the members", time.Minute, func(context.Context) error {
		ready, err := s.try("", "get", "volumesnapshots", "-o", "jsonpath={.items[*].status.readyToUse}")
		if ready != "true true" && err == nil {
			err = fmt.Errorf("ready: %q", ready)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestKnobs(t *testing.T) {
	s := begin(t)
	t.Cleanup(func() {
		if err := s.ResetKnobs(); err != nil {
			t.Error(err)
		}
	})
	s.claim("good", "")
	s.claim("bad", "")
	s.must("wait", "pvc/good", "pvc/bad", "--for=jsonpath={.status.phase}=Bound", "--timeout=60s")
	if err := s.SetKnobs(Knobs{ReadyDelay: 2 * time.Second, FailCreateSnapshot: "the array is full", FailVolumes: []string{s.ns + "/bad"}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"good", "bad"} {
		s.apply(fmt.Sprintf(`{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshot, metadata: {name: %s}, spec: {source: {persistentVolumeClaimName: %s}}}`,
			name, name), "apply", "-f", "-")
	}
	s.must("wait", "volumesnapshot/good", "--for=jsonpath={.status.readyToUse}=false", "--timeout=30s")
	s.must("wait", "volumesnapshot/bad", "--for=jsonpath={.status.error.message}", "--timeout=30s")
	if message := s.must("get", "volumesnapshot", "bad", "-o", "jsonpath={.status.error.message}"); !strings.Contains(message, "the array is full") {
		t.Errorf("the failed snapshot says %q", message)
	}
	s.must("wait", "volumesnapshot/good", "--for=jsonpath={.status.readyToUse}=true", "--timeout=60s")
	if err := s.ResetKnobs(); err != nil {
		t.Fatal(err)
	}
	s.must("wait", "volumesnapshot/bad", "--for=jsonpath={.status.readyToUse}=true", "--timeout=60s")
}

func TestUserMayWhatRBACSays(t *testing.T) {
	s := begin(t)
	config, err := s.CreateUserKubeconfig("alice", "readers")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := s.tryEnv([]string{"KUBECONFIG=" + config}, "", "get", "pods"); err == nil || !strings.Contains(err.Error(), `User "alice" cannot list`) {
		t.Errorf("alice read pods: %q, %v", out, err)
	}
	s.must("create", "rolebinding", "readers", "--clusterrole=view", "--group=readers")
	err = s.wait(t.Context(), "the role to count", 10*time.Second, func(context.Context) error {
		_, err := s.tryEnv([]string{"KUBECONFIG=" + config}, "", "get", "pods")
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestPartsDieAndComeBack(t *testing.T) {
	if testing.Short() {
		t.Skip("kills parts of the cluster")
	}
	s := begin(t)
	s.claim("data", "")
	s.pod("db", "data", "sleep 3600")
	for _, name := range []string{"snapshot-controller", "csi-snapshotter", "testcsi", "containerd", "kubelet", "kube-apiserver"} {
		if err := s.KillComponent(name); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := s.processOf(name); ok || err != nil {
			t.Errorf("%s was killed and runs, %v", name, err)
		}
		if err := s.StartComponent(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	err := s.wait(t.Context(), "the pod to be reached again", 30*time.Second, func(context.Context) error {
		_, err := s.try("", "exec", "db", "--", "true")
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if restarts := s.must("get", "pod", "db", "-o", "jsonpath={.status.containerStatuses[0].restartCount}"); restarts != "0" {
		t.Errorf("the container was restarted %s times", restarts)
	}

	if err := s.Pause("kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	if s.apiReady(t.Context()) == nil {
		t.Error("a frozen API server answered")
	}
	if err := s.Resume("kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	if err := s.apiReady(t.Context()); err != nil {
		t.Errorf("after it was resumed: %v", err)
	}
}

func TestExamples(t *testing.T) {
	s := begin(t)
	if err := InstallPackages(t.Context(), t.Output(), "postgresql", "mariadb-server"); err != nil {
		t.Fatal(err)
	}
	for _, example := range []string{"postgresql", "mariadb"} {
		b, err := os.ReadFile("examples/" + example + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		s.apply(string(b), "apply", "-f", "-")
	}
	for _, set := range []string{"postgres", "mariadb"} {
		s.must("rollout", "status", "statefulset/"+set, "--timeout=120s")
	}
	s.must("exec", "postgres-0", "--", "psql", "-c", "SELECT 1")
}

// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	pluginof "github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/command"
)

// plugin runs the kubectl plugin as a user would, in the namespace of an operator, with its clock.
type plugin struct {
	*operator
	kubeconfig string
	stdin      string
}

// result is what a command line did.
type result struct {
	code     int
	out, err string
}

// operatorTime shows the operator's time, and lets waits pass in real time.
type operatorTime struct {
	clock.RealClock
	o *operator
}

func (c operatorTime) Now() time.Time { return c.o.clock.Now() }

func (o *operator) plugin() *plugin {
	o.t.Helper()
	cfg := Env()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "admin", Namespace: o.namespace}
	config.Clusters["nowhere"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.Contexts["nowhere"] = &clientcmdapi.Context{Cluster: "nowhere", AuthInfo: "admin"}
	config.CurrentContext = "test"
	path := filepath.Join(o.t.TempDir(), "kubeconfig")
	o.Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return &plugin{operator: o, kubeconfig: path}
}

// do a command line to its end.
func (p *plugin) do(args ...string) result {
	p.t.Helper()
	return p.doUntil(p.t.Context(), args...)
}

func (p *plugin) doUntil(ctx context.Context, args ...string) result {
	p.t.Helper()
	var out, err bytes.Buffer
	code := pluginof.Execute(ctx, pluginof.Options{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(p.stdin), Out: &out, ErrOut: &err},
		Clock:     operatorTime{o: p.operator}, Zone: time.UTC,
		Version: pluginof.Version{Version: "v1.2.3", Commit: "abc", Date: "2026-03-01", Go: "go1"},
	}, append([]string{"--kubeconfig", p.kubeconfig}, args...))
	return result{code, out.String(), err.String()}
}

// ok expects a command line to end well, and returns what it printed.
func (p *plugin) ok(args ...string) string {
	p.t.Helper()
	r := p.do(args...)
	p.Expect(r.code).To(Equal(0), "%v\n%s\n%s", args, r.out, r.err)
	return r.out
}

// fails expects an exit code and what is said about it.
func (p *plugin) fails(code int, saying string, args ...string) result {
	p.t.Helper()
	r := p.do(args...)
	p.Expect(r.code).To(Equal(code), "%v\n%s\n%s", args, r.out, r.err)
	p.Expect(r.out + r.err).To(ContainSubstring(saying))
	return r
}

// ongoing is a command line that goes on while the test does something else.
type ongoing struct {
	p        *plugin
	mu       sync.Mutex
	out, err bytes.Buffer
	stop     context.CancelFunc
	code     chan int
}

type locked struct {
	r    *ongoing
	into *bytes.Buffer
}

func (l locked) Write(b []byte) (int, error) {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	return l.into.Write(b)
}

// begin a command line.
func (p *plugin) begin(args ...string) *ongoing {
	p.t.Helper()
	ctx, stop := context.WithCancel(p.t.Context())
	r := &ongoing{p: p, stop: stop, code: make(chan int, 1)}
	go func() {
		r.code <- pluginof.Execute(ctx, pluginof.Options{
			IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: locked{r, &r.out}, ErrOut: locked{r, &r.err}},
			Clock:     operatorTime{o: p.operator}, Zone: time.UTC,
		}, append([]string{"--kubeconfig", p.kubeconfig}, args...))
	}()
	p.t.Cleanup(stop)
	return r
}

// said so far, on both streams.
func (r *ongoing) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String() + r.err.String()
}

// end waits for the exit code.
func (r *ongoing) end() result {
	r.p.t.Helper()
	var code int
	r.p.will(func() bool {
		select {
		case code = <-r.code:
			return true
		default:
			return false
		}
	}).Should(BeTrue(), "the command does not end; it said:\n%s", r.said())
	r.mu.Lock()
	defer r.mu.Unlock()
	return result{code, r.out.String(), r.err.String()}
}

// everything is the state of all that the plugin could change.
func (p *plugin) everything() string {
	p.t.Helper()
	var out []string
	for _, list := range []client.ObjectList{&v1.SnapshotScheduleList{}, &v1.SnapshotRunList{}, &snapshotv1.VolumeSnapshotList{}, &corev1.PersistentVolumeClaimList{}, &corev1.PodList{}} {
		p.Expect(api.List(p.t.Context(), list, client.InNamespace(p.namespace))).To(Succeed())
		text, err := json.Marshal(list)
		p.Expect(err).NotTo(HaveOccurred())
		var any struct {
			Items []struct {
				Metadata struct{ Name, ResourceVersion string }
			}
		}
		p.Expect(json.Unmarshal(text, &any)).To(Succeed())
		for _, i := range any.Items {
			out = append(out, fmt.Sprintf("%T %s %s", list, i.Metadata.Name, i.Metadata.ResourceVersion))
		}
	}
	return strings.Join(out, "\n")
}

// asNobody is a user of the cluster without any right in it.
func asNobody(args ...string) []string {
	return append([]string{"--as", "nobody", "--as-group", "system:authenticated"}, args...)
}

// text writes a file and returns its name.
func (p *plugin) text(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.t.TempDir(), name)
	p.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
	p.Expect(os.WriteFile(path, []byte(text), 0o644)).To(Succeed())
	return path
}

func TestPluginList(t *testing.T) {
	o := operate(t)
	p := o.plugin()
	p.fails(0, "No SnapshotSchedules found in namespace "+o.namespace+".", "list")
	o.claim("data")
	o.schedule("good", hourlyOfAll)
	o.schedule("idle", `{schedule: "0 * * * *", disabled: true}`)
	o.schedule("wrong", `{schedule: "0 * * * *", timeZone: Europe/Nowhere}`)
	o.schedule("nothing", `{schedule: "0 * * * *", claimSelector: {matchLabels: {app: none}}}`)
	o.tick(o.hour(0))
	o.at(o.hour(0).Add(10 * time.Minute))

	rows := strings.Split(strings.TrimSpace(p.ok("list")), "\n")
	p.Expect(rows).To(HaveLen(5))
	p.Expect(strings.Fields(rows[0])).To(Equal([]string{"NAME", "HEALTH", "SCHEDULE", "LAST", "SUCCESS", "NEXT", "WHY"}))
	var names []string
	for _, r := range rows[1:] {
		names = append(names, strings.Join(strings.Fields(r)[:2], " "))
	}
	p.Expect(names).To(Equal([]string{"wrong Invalid", "nothing Skipped", "good OK", "idle Suspended"}), "the worst first")
	p.Expect(rows[3]).To(MatchRegexp(`10m ago +in 50m`))
	p.Expect(rows[1]).To(ContainSubstring("Europe/Nowhere"))
	p.Expect(strings.Join(rows, "")).NotTo(ContainSubstring("\x1b"), "no colours: this is no terminal")

	p.Expect(p.ok("list", "--no-headers")).NotTo(ContainSubstring("HEALTH"))
	p.Expect(p.ok("list", "-o", "wide")).To(MatchRegexp(`(?m)^NAME +HEALTH +SCHEDULE +TIME ZONE +HOOKS`))
	p.Expect(p.ok("list", "-A", "--no-headers")).To(ContainSubstring(o.namespace + "   "))
	p.Expect(p.ok("list", "-o", "name")).To(Equal("snapshotschedule.snapscheduler.backube/wrong\nsnapshotschedule.snapscheduler.backube/nothing\n" +
		"snapshotschedule.snapscheduler.backube/good\nsnapshotschedule.snapscheduler.backube/idle\n"))
	var list struct {
		Kind  string
		Items []v1.SnapshotSchedule
	}
	p.Expect(json.Unmarshal([]byte(p.ok("list", "-o", "json")), &list)).To(Succeed())
	p.Expect(list.Kind).To(Equal("List"))
	p.Expect(list.Items).To(HaveLen(4))
	p.Expect(list.Items[0].Kind).To(Equal("SnapshotSchedule"))
	p.Expect(p.ok("list", "-o", "yaml")).To(ContainSubstring("kind: SnapshotSchedule"))
	o.patch(&v1.SnapshotSchedule{}, "good", `{"metadata":{"labels":{"team":"shop"}}}`)
	p.Expect(p.ok("list", "-l", "team=shop", "-o", "name")).To(Equal("snapshotschedule.snapscheduler.backube/good\n"))

	// Hours later nobody has seen to it.
	for _, in := range o.instances {
		o.halt(in)
	}
	o.clock.SetTime(o.hour(5))
	p.Expect(p.ok("list")).To(MatchRegexp(`(?m)^good +Late .*is Stillpoint running`))
}

func TestPluginSaysWhatIsWrongAndWhatToType(t *testing.T) {
	o := prepare(t)
	p := o.plugin()
	o.schedule("hourly", hourlyOfAll)
	p.fails(1, "error: SnapshotSchedule daily does not exist in namespace "+o.namespace+" (there are: hourly)", "run", "daily")
	p.fails(1, "(none is there; -n NAMESPACE chooses another namespace", "run", "daily", "-n", "default")
	p.fails(1, "VolumeSnapshot x does not exist", "keep", "x")
	p.fails(1, "SnapshotRun x does not exist", "describe", "run/x")
	p.fails(1, "needs the name of a schedule", "run")
	p.fails(1, "--output xml is not one of wide, json, yaml, name", "list", "-o", "xml")
	p.fails(1, "--timeout is for --wait", "run", "hourly", "--timeout", "3s")
	p.fails(1, `unknown command "lsit"`, "lsit")
	p.fails(1, "list", "lsit") // did you mean
	p.fails(1, "the API server cannot be reached (context nowhere, server https://127.0.0.1:1)", "list", "--context", "nowhere")
	p.fails(1, `context "other" does not exist`, "list", "--context", "other")
	p.fails(1, "no such file", "--kubeconfig", "/no/such/file", "list")
	p.Expect(p.ok("version")).To(Equal("kubectl-stillpoint v1.2.3 (commit abc of 2026-03-01, go1)\n"))
	p.Expect(p.ok("version", "-o", "json")).To(MatchJSON(`{"version":"v1.2.3","commit":"abc","date":"2026-03-01","go":"go1"}`))
	for _, shell := range []string{"kubectl", "bash", "zsh", "fish", "powershell"} {
		p.Expect(p.ok("completion", shell)).To(ContainSubstring("__complete"))
	}
	p.fails(1, "no completion for", "completion", "tcsh")
	p.Expect(p.ok("__complete", "run", "ho")).To(HavePrefix("hourly\n"))
	p.Expect(p.ok("__complete", "list", "-o", "")).To(HavePrefix("wide\njson\nyaml\nname\n"))
	p.Expect(p.ok("__complete", "--namespace", o.namespace[:len(o.namespace)-1])).To(ContainSubstring(o.namespace))
}

func TestPluginWithoutRights(t *testing.T) {
	o := prepare(t)
	p := o.plugin()
	o.schedule("hourly", hourlyOfAll)
	before := p.everything()
	for _, args := range [][]string{{"list"}, {"run", "hourly"}, {"test-hooks", "hourly"}, {"release", "hourly"}, {"cancel", "hourly"}, {"history", "hourly"}, {"describe", "hourly"},
		{"restore", "hourly"}, {"suspend", "hourly"}, {"resume", "hourly"}, {"keep", "x"}, {"unkeep", "x"}, {"plan", "hourly"}} {
		r := p.fails(1, "you (nobody) may not ", asNobody(args...)...)
		p.Expect(r.err).To(MatchRegexp(`see: kubectl auth can-i \w+ [a-z.0-9]+ -n `+o.namespace), "%v", args)
		p.Expect(strings.Count(r.err, "error:")).To(Equal(1))
	}
	p.fails(1, "kubectl auth can-i list snapshotschedules.snapscheduler.backube -A", asNobody("list", "-A")...)
	p.Expect(p.everything()).To(Equal(before))
}

func TestPluginSuspendsAndResumes(t *testing.T) {
	o := prepare(t)
	p := o.plugin()
	o.schedule("a", hourlyOfAll)
	o.schedule("b", hourlyOfAll)
	p.Expect(p.ok("suspend", "a", "b")).To(Equal("snapshotschedule.snapscheduler.backube/a suspended\nsnapshotschedule.snapscheduler.backube/b suspended\n"))
	p.Expect(o.read("a").Spec.Disabled).To(BeTrue())
	p.Expect(p.ok("suspend", "a")).To(Equal("snapshotschedule.snapscheduler.backube/a was suspended already\n"))
	p.Expect(p.ok("resume", "a")).To(Equal("snapshotschedule.snapscheduler.backube/a resumed\n"))
	p.Expect(o.read("a").Spec.Disabled).To(BeFalse())
	p.Expect(o.read("b").Spec.Disabled).To(BeTrue())
	p.Expect(p.ok("resume", "a")).To(Equal("snapshotschedule.snapscheduler.backube/a was not suspended\n"))
}

func TestPluginKeepsSnapshots(t *testing.T) {
	o := operate(t)
	p := o.plugin()
	o.schedule("s", `{schedule: "0 * * * *", retention: {maxCount: 1}}`)
	old := o.made("old", "s", "gone", "uid", 3*time.Hour).Name
	p.Expect(p.ok("keep", old)).To(Equal("volumesnapshot.snapshot.storage.k8s.io/" + old + " kept\n"))
	o.made("newer", "s", "gone", "uid", 2*time.Hour)
	newest := o.made("newest", "s", "gone", "uid", time.Hour).Name
	o.settle()
	o.will(o.snapshotNames).Should(ConsistOf("old", "newest"), "retention goes on, and not for the one that is kept")
	p.Expect(p.ok("keep", old)).To(Equal("volumesnapshot.snapshot.storage.k8s.io/" + old + " was kept already\n"))
	p.Expect(p.ok("unkeep", "volumesnapshot/"+old)).To(Equal("volumesnapshot.snapshot.storage.k8s.io/" + old + " given back to retention\n"))
	o.settle()
	o.will(o.snapshotNames).Should(ConsistOf("newest"))
	p.Expect(p.ok("unkeep", newest)).To(Equal("volumesnapshot.snapshot.storage.k8s.io/" + newest + " was not kept\n"))
}

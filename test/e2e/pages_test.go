// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/stillpoint-operator/stillpoint/test/cluster"
	"github.com/stillpoint-operator/stillpoint/test/docs"
)

// walk follows a page as its reader does: what it shows is saved and typed as it stands there, but for what words replaces.
type walk struct {
	*kubectlPlugin
	dir   string
	words *strings.Replacer
	stand *standIn
}

// page of docs.
func (w *walk) page(name string) *docs.Page {
	w.Helper()
	source, err := os.ReadFile(filepath.Join("../../docs", name))
	w.Expect(err).NotTo(HaveOccurred())
	return docs.Parse(name, source)
}

// namespaceOfPages is the one that the pages use.
var namespaceOfPages = regexp.MustCompile(`\bshop\b`)

func (w *walk) text(s string) string {
	return namespaceOfPages.ReplaceAllString(w.words.Replace(s), w.ns)
}

// follow the blocks between the one that contains from and the one that contains to. It returns what the last commands printed.
func (w *walk) follow(p *docs.Page, from, to string) string {
	w.Helper()
	out, on := "", false
	for _, b := range p.Blocks {
		on = on || strings.Contains(b.Text, from)
		if !on {
			continue
		}
		switch {
		case b.Mark != "":
			w.Fatalf("%s:%d is marked %q: nobody can follow it", p.Path, b.Line, b.Mark)
		case b.Lang == "yaml":
			w.save(p, b)
		default:
			out, _ = w.do("cd " + w.dir + "\n" + w.text(b.Text))
		}
		if strings.Contains(b.Text, to) {
			return out
		}
	}
	w.Fatalf("%s has no blocks from %q to %q", p.Path, from, to)
	return ""
}

// save a block of YAML under the name that the text after it gives; one without a name is applied.
func (w *walk) save(p *docs.Page, b docs.Block) {
	w.Helper()
	text := w.stand.in(w.world, w.text(b.Text))
	after := b.Line + strings.Count(b.Text, "\n")
	for _, s := range p.Spans {
		if s.Line > after && s.Line <= after+3 && strings.HasSuffix(s.Text, ".yaml") {
			w.Expect(os.WriteFile(filepath.Join(w.dir, s.Text), []byte(text), 0o600)).To(Succeed())
			return
		}
	}
	w.Expect(os.WriteFile(filepath.Join(w.dir, "block.yaml"), []byte(text), 0o600)).To(Succeed())
	w.do("kubectl apply -f " + filepath.Join(w.dir, "block.yaml"))
}

// standIn is what takes the place of images that this cluster cannot pull: PostgreSQL of the machine's packages.
type standIn struct{ pod corev1.PodSpec }

func newStandIn(w *world) *standIn {
	w.Helper()
	source, err := os.ReadFile(examples + "postgresql.yaml")
	w.Expect(err).NotTo(HaveOccurred())
	s := &standIn{}
	for document := range strings.SplitSeq(string(source), "\n---\n") {
		switch {
		case strings.Contains(document, "kind: ConfigMap"):
			var users corev1.ConfigMap
			w.Expect(yaml.Unmarshal([]byte(document), &users)).To(Succeed())
			w.create(&users)
		case strings.Contains(document, "kind: StatefulSet"):
			var set appsv1.StatefulSet
			w.Expect(yaml.Unmarshal([]byte(document), &set)).To(Succeed())
			s.pod = set.Spec.Template.Spec
		}
	}
	w.Expect(s.pod.Containers).To(HaveLen(1))
	return s
}

func (s *standIn) in(w *world, text string) string {
	w.Helper()
	documents := docs.Documents(text)
	for i, document := range documents {
		var o appsv1.Deployment
		w.Expect(yaml.Unmarshal([]byte(document), &o)).To(Succeed())
		if o.Kind != "Deployment" {
			continue
		}
		mine, page := s.pod.Containers[0], &o.Spec.Template.Spec
		for j := range page.Containers {
			c := &page.Containers[j]
			w.Expect(c.Image).To(HavePrefix("postgres:"))
			c.Image, c.ImagePullPolicy, c.Command, c.ReadinessProbe = mine.Image, mine.ImagePullPolicy, mine.Command, mine.ReadinessProbe
			c.Env = append(c.Env, mine.Env...)
			c.VolumeMounts = append(c.VolumeMounts, mine.VolumeMounts[1:]...) // its first is the data, which the page mounts
		}
		page.Volumes = append(page.Volumes, s.pod.Volumes...)
		page.SecurityContext, page.TerminationGracePeriodSeconds = s.pod.SecurityContext, s.pod.TerminationGracePeriodSeconds
		out, err := yaml.Marshal(&o)
		w.Expect(err).NotTo(HaveOccurred())
		documents[i] = string(out)
	}
	return strings.Join(documents, "\n---\n")
}

// TestThePagesDoWhatTheySay types what getting started and restore tell their readers to type, with a real database.
func TestThePagesDoWhatTheySay(t *testing.T) {
	if err := cluster.InstallPackages(t.Context(), t.Output(), "postgresql"); err != nil {
		t.Fatal(err)
	}
	w := begin(t)
	f := &walk{kubectlPlugin: w.plugin(), dir: t.TempDir(), words: strings.NewReplacer(), stand: newStandIn(w)}
	start, restore := f.page("getting-started.md"), f.page("restore.md")

	f.follow(start, "kind: Namespace", "CREATE TABLE t")
	planned := f.follow(start, "kind: SnapshotSchedule", "kubectl stillpoint plan")
	w.Expect(planned).To(And(ContainSubstring("A run would take 1 snapshot with 1 hook"), ContainSubstring("in "+w.ns+"/db-")))
	f.follow(start, "kubectl apply -f schedule.yaml", "kubectl apply -f schedule.yaml")
	snapshots := w.snapshotNames()
	w.Expect(snapshots).To(HaveLen(1))

	// Without the plugin, then all of it taken away again.
	f.words = strings.NewReplacer("data-hourly-202603010300", snapshots[0], "storageClassName: fast", "", "busybox:1.37", cluster.ToolsImage)
	looked := f.follow(restore, "kubectl get volumesnapshots", "ls -la /data")
	w.Expect(looked).To(ContainSubstring(" pg\n"))
	f.do("kubectl -n " + w.ns + " delete pod/look pvc/data-restored")
	f.follow(restore, "snapscheduler.backube/retention-\n", "snapscheduler.backube/retention-\n")

	w.Expect(f.follow(start, "DROP TABLE t", "SELECT * FROM t")).To(ContainSubstring("before the snapshot"))

	f.follow(restore, "--to-suffix -drill", "--to-suffix -drill")
	var drill appsv1.Deployment
	w.Expect(api.Get(w.Context(), client.ObjectKey{Namespace: w.ns, Name: "db"}, &drill)).To(Succeed())
	drill.ObjectMeta, drill.Status = metav1.ObjectMeta{Name: "db-drill"}, appsv1.DeploymentStatus{}
	drill.Spec.Selector.MatchLabels, drill.Spec.Template.Labels = labelled("drill").MatchLabels, labelled("drill").MatchLabels
	for i := range drill.Spec.Template.Spec.Volumes {
		if source := drill.Spec.Template.Spec.Volumes[i].PersistentVolumeClaim; source != nil {
			source.ClaimName = "data-drill"
		}
	}
	w.create(&drill)
	f.do("kubectl -n " + w.ns + " rollout status deployment/db-drill")
	answer, _ := f.do("kubectl -n " + w.ns + " exec deploy/db-drill -- psql -U postgres -c 'SELECT * FROM t'")
	w.Expect(answer).To(ContainSubstring("before the snapshot"))
	f.follow(restore, "delete deployment/db-drill", "delete pvc data-drill")
}

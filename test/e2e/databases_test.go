// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

// minute is how long to wait for the next slot of "* * * * *" and what it does.
const minute = 100 * time.Second

// database is a StatefulSet of test/cluster/examples.
type database struct {
	*world
	name string // of the set and the label app
	sql  string // a shell command that runs the statement in $1
}

const (
	examples   = "../cluster/examples/"
	psql       = `psql -XAtqc "$1"`
	mariadbSQL = `MYSQL_PWD="$MARIADB_ROOT_PASSWORD" mariadb --no-defaults -S /tmp/mysql.sock -uroot -N -e "$1"`
)

func (d *database) query(statement string) string {
	d.Helper()
	out, err := d.exec(d.name+"-0", "sh", "-c", d.sql, "sh", statement)
	if err != nil {
		d.Fatalf("%s in %s: %v", statement, d.name, err)
	}
	return out
}

func (d *database) ready() {
	d.Helper()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: d.ns, Name: d.name}}
	awaitFor(d.world, 3*patience, set, "ready", func(s *appsv1.StatefulSet) bool { return s.Status.ReadyReplicas == 1 })
}

func (d *database) hook(name, script string, more ...string) v1.Hook {
	return v1.Hook{Name: name, PodSelector: ptr.To(labelled(d.name)), Command: append([]string{"sh", "-c", script, "sh"}, more...)}
}

// restore the example under another name, its volume from a snapshot.
func (d *database) restore(example, snapshot string) *database {
	d.Helper()
	text, err := os.ReadFile(examples + example)
	d.Expect(err).NotTo(HaveOccurred())
	back := &database{world: d.world, name: d.name + "-restored", sql: d.sql}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var set appsv1.StatefulSet
		if !strings.Contains(document, "kind: StatefulSet") || yaml.Unmarshal([]byte(document), &set) != nil {
			continue
		}
		set.Name, set.Spec.ServiceName = back.name, back.name
		set.Spec.Selector, set.Spec.Template.Labels = ptr.To(labelled(back.name)), labelled(back.name).MatchLabels
		claim := &set.Spec.VolumeClaimTemplates[0]
		claim.Labels = labelled(back.name).MatchLabels
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: snapshot}
		d.create(&set)
	}
	back.ready()
	return back
}

func TestPostgreSQLAtARealSlotAndASlotThatOverlaps(t *testing.T) {
	if err := cluster.InstallPackages(t.Context(), t.Output(), "postgresql"); err != nil {
		t.Fatal(err)
	}
	w := begin(t)
	t.Run("a checkpoint, a snapshot at the slot, and a server restored from it", func(t *testing.T) {
		t.Parallel()
		w := w.within(t)
		w.apply(examples + "postgresql.yaml")
		db := &database{world: w, name: "postgres", sql: psql}
		db.ready()
		db.query("CREATE TABLE orders AS SELECT generate_series(1, 1000) AS id")
		created := time.Now()
		s := w.schedule("minutely", func(s *v1.SnapshotScheduleSpec) {
			s.Schedule, s.ClaimSelector = "* * * * *", labelled("postgres")
			s.PreHooks = []v1.PreHook{{Hook: db.hook("checkpoint", psql, "CHECKPOINT; SELECT count(*) FROM orders")}}
		})
		s = awaitFor(w, minute, s, "through its first slot", func(s *v1.SnapshotSchedule) bool { return s.Status.LastSuccessTime != nil })
		// One slot is enough.
		change(w, s, func(s *v1.SnapshotSchedule) { s.Spec.Disabled = true })
		o := w.runsOf(s)[0]
		w.expectCondition(s.Status.Conditions, v1.ConditionReady, metav1.ConditionTrue, v1.ReasonScheduled)
		w.expectCondition(s.Status.Conditions, v1.ConditionReconciled, metav1.ConditionTrue, v1.ReasonReconcileComplete)
		w.Expect(metav1.IsControlledBy(o, s)).To(BeTrue())
		w.Expect(o.Spec.Slot.Time).To(And(BeTemporally(">=", created), BeTemporally("==", o.Spec.Slot.Truncate(time.Minute))))
		w.Expect(o.Status.StartTime.Sub(o.Spec.Slot.Time)).To(BeNumerically("<", 10*time.Second), "it starts at the slot")
		o = w.completes(patience, o)
		w.Expect(o.Status.Result).To(Equal(v1.ResultSucceeded), describe(o))
		w.expectLabels(o, map[string]string{"data-postgres-0": application})
		w.Expect(strings.TrimSpace(target(hookOf(o, "checkpoint")).Output)).To(Equal("1000"))
		name := o.Status.Snapshots[0].Name
		w.Expect(name).To(Equal("data-postgres-0-minutely-" + o.Spec.Slot.UTC().Format("200601021504")))

		db.query("DROP TABLE orders")
		back := db.restore("postgresql.yaml", name)
		w.Expect(back.query("SELECT count(*) FROM orders")).To(Equal("1000"))

		w.remove(s)
		awaitGone(w, o)
		w.Expect(w.snapshotNames()).To(ContainElement(name), "snapshots stay when their schedule is deleted")
	})
	t.Run("a slot that comes while a run is still quiesced is skipped and counted", func(t *testing.T) {
		t.Parallel()
		w := w.within(t)
		db := w.app("db")
		s := w.schedule("overlapping", hooked(db, "echo x >>/state/pre; until [ -e /state/go ]; do sleep 0.2; done", thaw),
			func(s *v1.SnapshotScheduleSpec) { s.Schedule = "* * * * *" })
		o := w.start(s)
		s = awaitFor(w, minute, s, "past a slot", func(s *v1.SnapshotSchedule) bool { return s.Status.LastMissed != nil })
		w.Expect(s.Status.LastMissed.Reason).To(Equal(v1.MissedOverlap))
		w.Expect(s.Status.LastMissed.Count).To(BeEquivalentTo(1))
		w.Expect(s.Status.NextSnapshotTime.Time).To(Equal(s.Status.LastMissed.Slot.Add(time.Minute)))
		w.expectEvent(s, "SlotMissed", "has not released its application yet")
		w.Expect(w.runsOf(s)).To(HaveLen(1), "no run was made for the slot")
		db.sh("touch /state/go")
		w.ends(o, v1.ResultSucceeded)
		w.Expect(db.noted("pre")).To(Equal(1))
	})
}

func TestMariaDBFlushesItsTables(t *testing.T) {
	if err := cluster.InstallPackages(t.Context(), t.Output(), "mariadb-server"); err != nil {
		t.Fatal(err)
	}
	w := begin(t)
	w.apply(examples + "mariadb.yaml")
	db := &database{world: w, name: "mariadb", sql: mariadbSQL}
	db.ready()
	db.query("USE app; CREATE TABLE orders (id INT) ENGINE=InnoDB; INSERT INTO orders SELECT seq FROM seq_1_to_1000")
	db.query("USE app; CREATE TABLE old (id INT) ENGINE=MyISAM; INSERT INTO old SELECT seq FROM seq_1_to_500")
	s := w.schedule("hourly", func(s *v1.SnapshotScheduleSpec) {
		s.ClaimSelector = labelled("mariadb")
		// FLUSH TABLES closes MyISAM's files and leaves them in the page cache, where a snapshot of blocks does not see them.
		s.PreHooks = []v1.PreHook{{Hook: db.hook("flush", mariadbSQL+" && sync -f /data", "FLUSH TABLES")}}
	})

	o := w.ends(w.start(s), v1.ResultSucceeded)

	w.expectLabels(o, map[string]string{"data-mariadb-0": application})
	db.query("DROP TABLE app.orders, app.old")
	back := db.restore("mariadb.yaml", o.Status.Snapshots[0].Name)
	w.Expect(back.query("SELECT count(*) FROM app.orders")).To(Equal("1000"))
	w.Expect(back.query("SELECT count(*) FROM app.old")).To(Equal("500"))
}

// runsOf a schedule, oldest first.
func (w *world) runsOf(s *v1.SnapshotSchedule) []*v1.SnapshotRun {
	w.Helper()
	var list v1.SnapshotRunList
	w.Expect(api.List(w.Context(), &list, client.InNamespace(w.ns))).To(Succeed())
	var out []*v1.SnapshotRun
	for i := range list.Items {
		if o := &list.Items[i]; o.Spec.ScheduleName == s.Name {
			out = append(out, o)
		}
	}
	return out
}

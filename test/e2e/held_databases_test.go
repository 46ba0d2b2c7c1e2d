// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

// beat is one row that a client inserted.
type beat struct {
	row      int
	from, to time.Time
}

func (b beat) took() time.Duration { return b.to.Sub(b.from) }

// inserting starts a client in the MariaDB pod that inserts a row again and again, and notes when.
const inserting = `setsid sh -c '
export MYSQL_PWD="$MARIADB_ROOT_PASSWORD"
i=0
while i=$((i+1)); from=$(date +%s.%N); mariadb -S /tmp/mysql.sock -uroot -e "INSERT INTO app.beats VALUES ($i)"; do echo "$i $from $(date +%s.%N)" >>/tmp/beats; done
' </dev/null >/dev/null 2>&1 &`

func (d *database) beats() []beat {
	d.Helper()
	text, err := d.exec(d.name+"-0", "sh", "-c", "cat /tmp/beats 2>/dev/null || true")
	d.Expect(err).NotTo(HaveOccurred())
	var out []beat
	for text := range strings.Lines(text) {
		var row int
		var from, to float64
		if _, err := fmt.Sscanf(text, "%d %g %g", &row, &from, &to); err == nil {
			out = append(out, beat{row, time.UnixMicro(int64(from * 1e6)), time.UnixMicro(int64(to * 1e6))})
		}
	}
	return out
}

// longest beats, first the longest.
func longest(beats []beat) (first, second beat) {
	for _, b := range beats {
		switch {
		case b.took() > first.took():
			first, second = b, first
		case b.took() > second.took():
			second = b
		}
	}
	return first, second
}

// awaitBeats waits until rows are inserted that were begun after a moment.
func (d *database) awaitBeats(after time.Time) {
	d.Helper()
	d.Eventually(func() bool {
		b := d.beats()
		return len(b) > 3 && b[len(b)-3].from.After(after)
	}, patience, "100ms").Should(BeTrue(), "rows are inserted")
}

func TestHeldLockOfMariaDBBlocksAClientExactlyWhileItIsHeld(t *testing.T) {
	if err := cluster.InstallPackages(t.Context(), t.Output(), "mariadb-server"); err != nil {
		t.Fatal(err)
	}
	op := startOperator(t)
	w := settle(t)
	w.apply(examples + "mariadb.yaml")
	db := &database{world: w, name: "mariadb", sql: mariadbSQL}
	db.ready()
	db.query("USE app; CREATE TABLE beats (n INT) ENGINE=InnoDB; CREATE TABLE old (id INT) ENGINE=MyISAM; INSERT INTO old SELECT seq FROM seq_1_to_500")
	_, err := w.exec("mariadb-0", "sh", "-c", inserting)
	w.Expect(err).NotTo(HaveOccurred())
	db.awaitBeats(time.Time{})
	s := w.schedule("held", hooksOf(recipe(w, "MariaDB: lock, held")), changed("mariadb -uroot", "mariadb -S /tmp/mysql.sock -uroot"),
		func(s *v1.SnapshotScheduleSpec) { s.ClaimSelector = labelled("mariadb") })

	w.knobs(cluster.Knobs{CutDelay: 2 * time.Second})
	o := w.reaches(w.start(s), v1.PhaseSnapshotting)
	w.Expect(db.query("SELECT count(*) FROM app.old")).To(Equal("500"), "it can be read meanwhile")
	o = w.ends(o, v1.ResultSucceeded)

	w.expectLabels(o, map[string]string{"data-mariadb-0": application})
	held := target(hookOf(o, "lock"))
	w.Expect(strings.Fields(held.Output)).To(Equal([]string{"READY", "RELEASED"}))
	db.awaitBeats(held.EndTime.Time)
	blocked, other := longest(db.beats())
	t.Logf("row %d waited %s, the next longest %s", blocked.row, blocked.took(), other.took())
	w.Expect(blocked.from).To(BeTemporally("<=", held.HeldTime.Add(tick)), "the client waits from the lock")
	w.Expect(blocked.to).To(BeTemporally(">=", o.Status.ReleaseTime.Time), "until the cut was seen")
	w.Expect(blocked.to).To(BeTemporally("<=", held.EndTime.Add(tick)), "and no longer than the lock")
	w.Expect(other.took()).To(BeNumerically("<", time.Second), "nothing else made it wait")

	t.Run("killed with its operator, it gives the lock back at once", func(t *testing.T) {
		w, db := w.within(t), *db
		db.world = w
		w.knobs(cluster.Knobs{CutDelay: 4 * time.Second})
		o := w.reaches(w.start(s), v1.PhaseSnapshotting)
		killed := time.Now()
		op.kill()
		db.awaitBeats(killed)
		var freed time.Time
		for _, b := range db.beats() {
			if b.from.Before(killed) {
				freed = b.to
			}
		}
		t.Logf("the client went on %s after the operator was killed", freed.Sub(killed))
		w.Expect(freed).To(And(BeTemporally(">", killed), BeTemporally("<", killed.Add(time.Second))))
		dropLease()
		startOperator(t)
		o = w.completes(patience, o)
		w.expectLost(o, "lock", "data-mariadb-0", "operator process")
	})

	back := db.restore("mariadb.yaml", o.Status.Snapshots[0].Name)
	w.Expect(back.query("SELECT count(*), max(n) FROM app.beats")).To(Equal(fmt.Sprintf("%d\t%d", blocked.row-1, blocked.row-1)), "every row before the lock, and none after it")
	w.Expect(back.query("SELECT count(*) FROM app.old")).To(Equal("500"))
}

func TestHeldBackupModeOfPostgreSQLRestoresWithItsLabelAndTheLog(t *testing.T) {
	if err := cluster.InstallPackages(t.Context(), t.Output(), "postgresql"); err != nil {
		t.Fatal(err)
	}
	op := startOperator(t)
	w := settle(t)
	w.apply(examples + "postgresql.yaml")
	db := &database{world: w, name: "postgres", sql: psql}
	db.ready()
	db.query("CREATE TABLE orders AS SELECT generate_series(1, 1000) AS id")
	const sessions = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%READY%' AND pid <> pg_backend_pid()"
	s := w.schedule("held", hooksOf(sample(w, "schedule-postgresql.yaml")), hooksOf(recipe(w, "PostgreSQL: dump to disk")),
		hooksOf(recipe(w, "PostgreSQL: backup mode, held")), func(s *v1.SnapshotScheduleSpec) { s.ClaimSelector = labelled("postgres") })

	w.knobs(cluster.Knobs{CutDelay: time.Second})
	o := w.reaches(w.start(s), v1.PhaseSnapshotting)
	w.Expect(db.query(sessions)).To(Equal("1"), "the session is open")
	db.query("INSERT INTO orders VALUES (1001)")
	w.Expect(api.Get(t.Context(), keyOf(o), o)).To(Succeed())
	w.Expect(o.Status.Phase).To(Equal(v1.PhaseSnapshotting), "nobody had to wait")
	o = w.ends(o, v1.ResultSucceeded)

	w.expectLabels(o, map[string]string{"data-postgres-0": application})
	w.expectReason(o, "checkpoint", v1.ReasonHookCompleted)
	w.expectReason(o, "dump", v1.ReasonHookCompleted)
	_, label, found := strings.Cut(target(hookOf(o, "backup-mode")).Output, "READY\n")
	w.Expect(found).To(BeTrue())
	label, _, found = strings.Cut(label, "\nRELEASED")
	w.Expect(found).To(BeTrue())
	w.Expect(label).To(ContainSubstring("BACKUP METHOD: streamed"))
	w.Expect(db.query(sessions)).To(Equal("0"), "the session is over")

	shell := db.shell("postgresql.yaml", o.Status.Snapshots[0].Name)
	w.Expect(shell.sh("pg_restore -l /data/dump")).To(ContainSubstring("TABLE DATA public orders"))
	t.Log("the archive that a restore needs; checkpoints recycle the log")
	from, to := w.onNode("postgres-0", "data-postgres-0"), w.onNode(shell.name, shell.name)
	w.Expect(command(t.Context(), "cp", "-a", filepath.Join(from, "pg/pg_wal"), filepath.Join(to, "archive"))).To(Succeed())
	for name, text := range map[string]string{"backup_label": label, "recovery.signal": ""} {
		w.Expect(os.WriteFile(filepath.Join(to, "pg", name), []byte(text), 0o644)).To(Succeed())
		w.Expect(os.Chown(filepath.Join(to, "pg", name), 999, 999)).To(Succeed())
	}
	shell.sh(`rm -f $PGDATA/postmaster.pid; pg_ctl start -w -l /tmp/log -o "-k /tmp -c restore_command='cp /data/archive/%f %p'" >/dev/null 2>&1 || { tail -20 /tmp/log >&2; exit 1; }`)
	w.Expect(shell.sh("cat /tmp/log")).To(And(ContainSubstring("starting archive recovery"), ContainSubstring("consistent recovery state reached")))
	w.Expect(shell.sh("psql -XAtqc 'SELECT count(*) FROM orders'")).To(Equal("1001"), "what was written while held is there, too")

	t.Run("killed with its operator, it leaves backup mode at once", func(t *testing.T) {
		w, db := w.within(t), *db
		db.world = w
		w.knobs(cluster.Knobs{CutDelay: 3 * time.Second})
		o := w.reaches(w.start(s), v1.PhaseSnapshotting)
		w.Expect(db.query(sessions)).To(Equal("1"))
		op.kill()
		w.Eventually(func() string { return db.query(sessions) }, "1s", "50ms").Should(Equal("0"))
		dropLease()
		startOperator(t)
		o = w.completes(patience, o)
		w.expectLost(o, "backup-mode", "data-postgres-0", "operator process")
	})
}

// shell is the pod of an example with a volume from a snapshot, without its server.
func (d *database) shell(example, snapshot string) *app {
	d.Helper()
	text, err := os.ReadFile(examples + example)
	d.Expect(err).NotTo(HaveOccurred())
	name := d.name + "-shell"
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var set appsv1.StatefulSet
		if !strings.Contains(document, "kind: StatefulSet") || yaml.Unmarshal([]byte(document), &set) != nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: set.Spec.VolumeClaimTemplates[0].Spec}
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: snapshot}
		d.create(claim)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: set.Spec.Template.Spec}
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
		pod.Spec.Containers[0].Command, pod.Spec.Containers[0].ReadinessProbe = []string{"sh", "-c", idle}, nil
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
		d.create(pod)
	}
	a := &app{world: d.world, name: name}
	a.ready()
	return a
}

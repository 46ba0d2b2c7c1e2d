// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/torture"
)

// evidence of what happened, from the runs' records, the containers, the writers and the storage.
func (l *load) evidence() *torture.Evidence {
	l.Helper()
	e := &torture.Evidence{}
	for _, a := range l.apps {
		e.Apps = append(e.Apps, l.appEvidence(a))
	}
	for _, o := range l.ledger.all() {
		e.Runs = append(e.Runs, l.runEvidence(o))
	}
	e.Snapshots = l.stored()
	for _, v := range l.victims {
		s := &v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: v.name}}
		quiesced := func() bool {
			l.Expect(api.Get(l.Context(), keyOf(s), s)).To(Succeed())
			return meta.IsStatusConditionTrue(s.Status.Conditions, v1.ConditionMayBeQuiesced)
		}
		for deadline := time.Now().Add(5 * time.Second); quiesced() && time.Now().Before(deadline); {
			<-time.After(100 * time.Millisecond)
		}
		if quiesced() {
			e.Alarms = append(e.Alarms, describe(s))
		}
		if v.everyMinute {
			e.Slots = append(e.Slots, slotEvidence(v, s))
		}
	}
	return e
}

func slotEvidence(v *victim, s *v1.SnapshotSchedule) torture.Slots {
	out := torture.Slots{Schedule: v.name}
	if s.Status.LastMissed != nil {
		out.Missed = s.Status.LastMissed.Count
	}
	for slot := v.first; slot.Before(s.Status.NextSnapshotTime.Time); slot = slot.Add(time.Minute) {
		out.Due = append(out.Due, slot)
	}
	return out
}

func (l *load) appEvidence(a *app) torture.App {
	l.Helper()
	out := torture.App{Name: a.name, Kind: l.kinds[a.name], Frozen: a.frozen()}
	state := l.stateOnNode(a)
	boot := bootTime(l.world)
	at := func(up float64) time.Time { return boot.Add(time.Duration(up * float64(time.Second))) }
	for _, text := range linesOf(l.world, filepath.Join(state, "writes")) {
		var begun, done float64
		switch n, _ := fmt.Sscanf(text, "%g %g", &begun, &done); n {
		case 2:
			out.Writes = append(out.Writes, torture.Write{Begun: at(begun), Done: at(done)})
		case 1:
			out.Writes = append(out.Writes, torture.Write{Begun: at(begun)})
		}
	}
	if out.Kind == torture.Plain {
		return out
	}
	for _, text := range linesOf(l.world, filepath.Join(state, "notes")) {
		var n torture.Note
		var up float64
		if _, err := fmt.Sscanf(text, "%s %s %g", &n.Word, &n.Tag, &up); err != nil {
			l.Errorf("note %q of %s: %v", text, a.name, err)
			continue
		}
		n.At = at(up)
		out.Notes = append(out.Notes, n)
	}
	return out
}

// stateOnNode is where the node keeps /state of an app.
func (l *load) stateOnNode(a *app) string {
	l.Helper()
	p := a.object()
	l.Expect(api.Get(l.Context(), keyOf(p), p)).To(Succeed())
	l.Expect(p.Status.ContainerStatuses[0].RestartCount).To(BeZero(), "the writer was never restarted")
	return filepath.Join(local.StateDir(), "kubelet/pods", string(p.UID), "volumes/kubernetes.io~empty-dir/state")
}

func linesOf(w *world, file string) []string {
	w.Helper()
	text, err := os.ReadFile(file)
	w.Expect(err).NotTo(HaveOccurred())
	return strings.Split(strings.TrimRight(string(text), "\n"), "\n")
}

func (l *load) runEvidence(o *v1.SnapshotRun) torture.Run {
	st := &o.Status
	out := torture.Run{
		Name: o.Name, Schedule: o.Spec.ScheduleName, Created: o.CreationTimestamp.Time, Slot: ptr.Deref(o.Spec.Slot, metav1.Time{}).Time,
		Claimed: timeOf(st.QuiescedTime), LastClaimed: timeOf(st.QuiescedTime), Released: timeOf(st.ReleasedTime), Completed: timeOf(st.CompletionTime),
		Finalizer: len(o.Finalizers) > 0 && o.DeletionTimestamp == nil, Result: string(st.Result), Message: st.Message,
	}
	for _, v := range l.victims {
		if v.name == o.Spec.ScheduleName {
			out.App, out.Kind = v.app, v.kind
		}
	}
	if st.Plan != nil && len(st.Plan.PreHooks) > 0 {
		_, after, _ := strings.Cut(st.Plan.PreHooks[0].Command[2], `echo "$1 `)
		out.Tag, _, _ = strings.Cut(after, " ")
	}
	for i := range st.Hooks {
		if h := &st.Hooks[i]; h.Stage == v1.StagePre && len(h.Targets) > 0 {
			out.Attempts = int(h.Targets[0].Attempts)
			if t := timeOf(h.Targets[0].StartTime); t.After(out.LastClaimed) {
				out.LastClaimed = t
			}
		}
	}
	return out
}

func timeOf(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// stored is what the storage knows of every snapshot that exists.
func (w *world) stored() []torture.Snapshot {
	w.Helper()
	var snapshots snapshotv1.VolumeSnapshotList
	var contents snapshotv1.VolumeSnapshotContentList
	w.Expect(api.List(w.Context(), &snapshots, client.InNamespace(w.ns))).To(Succeed())
	w.Expect(api.List(w.Context(), &contents)).To(Succeed())
	handles := map[string]string{}
	for _, c := range contents.Items {
		if c.Status != nil {
			handles[c.Name] = ptr.Deref(c.Status.SnapshotHandle, "")
		}
	}
	pool := filepath.Join(local.StateDir(), "pool")
	var state struct {
		Snapshots map[string]struct {
			File    string
			Created time.Time
		}
	}
	text, err := os.ReadFile(filepath.Join(pool, "state.json"))
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(json.Unmarshal(text, &state)).To(Succeed())
	var out []torture.Snapshot
	for _, s := range snapshots.Items {
		found := torture.Snapshot{Name: s.Name, App: ptr.Deref(s.Spec.Source.PersistentVolumeClaimName, ""), Label: s.Labels[v1.LabelConsistency]}
		if s.Status != nil {
			if cut, ok := state.Snapshots[handles[ptr.Deref(s.Status.BoundVolumeSnapshotContentName, "")]]; ok {
				found.Cut = cut.Created
				found.Clean = clean(w, filepath.Join(pool, cut.File))
			}
		}
		out = append(out, found)
	}
	return out
}

// clean says whether an ext4 image needs no recovery of its journal: what is frozen or unmounted does not, and what is written to does.
func clean(w *world, image string) bool {
	w.Helper()
	const superblock, incompatible, needsRecovery = 1024, 0x60, 0x4 // little endian
	f, err := os.Open(image)
	w.Expect(err).NotTo(HaveOccurred())
	defer f.Close()
	var features [1]byte
	_, err = f.ReadAt(features[:], superblock+incompatible)
	w.Expect(err).NotTo(HaveOccurred())
	return features[0]&needsRecovery == 0
}

// keep the evidence for whoever looks into it: with go test -artifacts it stays.
func (l *load) keep(e *torture.Evidence, p *pair) {
	l.Helper()
	dir := l.ArtifactDir()
	write := func(name string, content []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			l.Errorf("keeping %s: %v", name, err)
		}
	}
	text, err := json.MarshalIndent(e, "", " ")
	l.Expect(err).NotTo(HaveOccurred())
	write("evidence.json", text)
	var runs []byte
	for _, o := range l.ledger.all() {
		o.SetManagedFields(nil)
		record, err := yaml.Marshal(o)
		l.Expect(err).NotTo(HaveOccurred())
		runs = append(append(runs, "---\n"...), record...)
	}
	write("runs.yaml", runs)
	for i, o := range p.all {
		write(fmt.Sprintf("operator-%03d.log", i), o.log.whole())
	}
}

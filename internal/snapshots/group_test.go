// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"testing"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// member of a group: group is what its status says.
func member(group string) snapshotv1.VolumeSnapshot {
	s := snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: "snapshot-0a1b", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "groupsnapshot.storage.k8s.io/v1", Kind: "VolumeGroupSnapshot", Name: "hourly-202603011200", UID: "g"}}},
		Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To("data")}},
	}
	if group != "" {
		s.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: ptr.To(true), VolumeGroupSnapshotName: ptr.To(group)}
	}
	return s
}

func TestMembersOfAGroupAreMadeByTheScheduleThatNamedIt(t *testing.T) {
	g := NewWithT(t)
	for group, made := range map[string]bool{"hourly-202603011200": true, "daily-202603011200": false, "precious": false, "": false} {
		s := member(group)
		g.Expect(MadeBy("hourly", &s)).To(Equal(made), group)
	}
	// Whoever may write owners but no status makes no member, and takes none away: a snapshot that has the name stays where it was.
	plain := member("")
	plain.Name = "data-hourly-202603011200"
	g.Expect(MadeBy("hourly", &plain)).To(BeFalse())
	plain.OwnerReferences = nil
	g.Expect(MadeBy("hourly", &plain)).To(BeTrue())
}

func TestRetentionKnowsTheGroup(t *testing.T) {
	g := NewWithT(t)
	found := ForRetention("hourly", []snapshotv1.VolumeSnapshot{member("hourly-202603011200"), member("")}, nil)
	g.Expect(found).To(HaveExactElements(
		And(HaveField("Group", "hourly-202603011200"), HaveField("Foreign", false), HaveField("ClaimName", "data")),
		And(HaveField("Group", ""), HaveField("Foreign", true))))
}

func TestObserveGroup(t *testing.T) {
	g := NewWithT(t)
	o := &groupv1.VolumeGroupSnapshot{ObjectMeta: metav1.ObjectMeta{UID: "g"}}
	g.Expect(ObserveGroup("r", o)).To(Equal(run.Snapshot{UID: "g", Foreign: true}))
	o.Status = &groupv1.VolumeGroupSnapshotStatus{ReadyToUse: ptr.To(true), CreationTime: &cut, BoundVolumeGroupSnapshotContentName: ptr.To("c"),
		Error: &snapshotv1.VolumeSnapshotError{Message: ptr.To("slow")}}
	g.Expect(ObserveGroup("", o)).To(Equal(run.Snapshot{UID: "g", Cut: true, Ready: true, Bound: true, CreationTime: &cut.Time, Error: "slow"}))
}

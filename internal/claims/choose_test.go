// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

func claim(name string, changes ...func(*corev1.PersistentVolumeClaim)) corev1.PersistentVolumeClaim {
	c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fast")}}
	c.Status.Phase = corev1.ClaimBound
	for _, change := range changes {
		change(&c)
	}
	return c
}

func annotated(key, value string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, value) }
}

func TestChoose(t *testing.T) {
	classes := []snapshotv1.VolumeSnapshotClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Driver: "a"},
		{ObjectMeta: metav1.ObjectMeta{Name: "default-a", Annotations: map[string]string{annotationDefaultClass: "true"}}, Driver: "a"},
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Driver: "b"},
	}
	ofDriver := func(d string) func(*corev1.PersistentVolumeClaim) { return annotated(annotationProvisioner, d) }
	named := func(class string) v1.SnapshotScheduleSpec {
		return v1.SnapshotScheduleSpec{SnapshotTemplate: &v1.SnapshotTemplateSpec{SnapshotClassName: &class}}
	}
	for name, c := range map[string]struct {
		spec    v1.SnapshotScheduleSpec
		claims  []corev1.PersistentVolumeClaim
		taken   []run.Claim
		leftOut []string
	}{
		"a bound claim is taken with the default class, in the order of names": {
			claims: []corev1.PersistentVolumeClaim{claim("two", ofDriver("a")), claim("one", ofDriver("a"))},
			taken:  []run.Claim{{Name: "one", UID: "uid-one"}, {Name: "two", UID: "uid-two"}},
		},
		"an excluded claim is not even mentioned": {
			claims: []corev1.PersistentVolumeClaim{claim("one", ofDriver("a"), annotated(v1.AnnotationExclude, "true"))},
		},
		"a claim of another StorageClass is not wanted": {
			spec:   v1.SnapshotScheduleSpec{StorageClassNames: []string{"slow"}},
			claims: []corev1.PersistentVolumeClaim{claim("one", ofDriver("a"))},
		},
		"an unbound claim is left out": {
			claims:  []corev1.PersistentVolumeClaim{claim("one", func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending })},
			leftOut: []string{"claim one is not bound"},
		},
		"a claim that is being deleted is left out": {
			claims:  []corev1.PersistentVolumeClaim{claim("one", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = ptr.To(metav1.Now()) })},
			leftOut: []string{"claim one is being deleted"},
		},
		"a volume that is not CSI is left out": {
			claims:  []corev1.PersistentVolumeClaim{claim("one")},
			leftOut: []string{"claim one has a volume that is not CSI and cannot be snapshotted"},
		},
		"the schedule's class is taken for its driver": {
			spec: named("gold"), claims: []corev1.PersistentVolumeClaim{claim("one", ofDriver("a"))},
			taken: []run.Claim{{Name: "one", UID: "uid-one", ClassName: "gold"}},
		},
		"the schedule's class for another driver leaves the claim to its default": {
			spec: named("other"), claims: []corev1.PersistentVolumeClaim{claim("one", ofDriver("a"))},
			taken: []run.Claim{{Name: "one", UID: "uid-one"}},
		},
		"the claim's own class goes before the schedule's": {
			spec: named("default-a"), claims: []corev1.PersistentVolumeClaim{claim("one", ofDriver("a"), annotated(v1.AnnotationSnapshotClass, "gold"))},
			taken: []run.Claim{{Name: "one", UID: "uid-one", ClassName: "gold"}},
		},
		"the claim's own class must be for its driver": {
			claims: []corev1.PersistentVolumeClaim{claim("one", ofDriver("a"), annotated(v1.AnnotationSnapshotClass, "other"))},
			leftOut: []string{"claim one names VolumeSnapshotClass other in its annotation snapscheduler.backube/snapshot-class, " +
				"which is for driver b and not for a"},
		},
		"a class that does not exist leaves all claims out": {
			spec: named("gone"), claims: []corev1.PersistentVolumeClaim{claim("one", ofDriver("a"))},
			leftOut: []string{"claim one cannot be taken: VolumeSnapshotClass gone of spec.snapshotTemplate.snapshotClassName does not exist"},
		},
		"a driver without a default class": {
			claims:  []corev1.PersistentVolumeClaim{claim("one", ofDriver("b"))},
			leftOut: []string{"claim one cannot be taken: no default VolumeSnapshotClass for its driver b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			taken, leftOut, err := Choose(&v1.SnapshotSchedule{Spec: c.spec}, c.claims, classes, func(c *corev1.PersistentVolumeClaim) (string, error) {
				return c.Annotations[annotationProvisioner], nil
			})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(taken).To(Equal(c.taken))
			g.Expect(leftOut).To(Equal(c.leftOut))
		})
	}
}

func TestChooseEndsWhenADriverCannotBeRead(t *testing.T) {
	unreadable := errors.New("no answer")
	_, _, err := Choose(&v1.SnapshotSchedule{}, []corev1.PersistentVolumeClaim{claim("one")}, nil, func(*corev1.PersistentVolumeClaim) (string, error) {
		return "", unreadable
	})
	NewWithT(t).Expect(err).To(MatchError(unreadable))
}

// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"fmt"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

const annotationDefaultClass = "snapshot.storage.kubernetes.io/is-default-class"

// Choose among the claims that the schedule's selector matches: those that can be taken, by name, and in words those that are wanted and
// cannot. classes are all that exist. driver tells the CSI driver of a bound claim, empty for a volume that is not CSI; its error ends
// the choice. Where nothing that belongs to the cluster may be read, driver is nil: classes are then taken as they are named, unchecked.
func Choose(s *v1.SnapshotSchedule, matching []corev1.PersistentVolumeClaim, classes []snapshotv1.VolumeSnapshotClass,
	driver func(*corev1.PersistentVolumeClaim) (string, error)) (taken []run.Claim, leftOut []string, err error) {
	for i := range matching {
		c := &matching[i]
		if c.Annotations[v1.AnnotationExclude] == "true" || !wantedClass(s, c) {
			continue
		}
		why := ""
		class := ""
		switch {
		case c.DeletionTimestamp != nil:
			why = "is being deleted"
		case c.Status.Phase != corev1.ClaimBound:
			why = "is not bound"
		case driver == nil:
			class = namedClass(s, c)
		default:
			d, err := driver(c)
			if err != nil {
				return nil, nil, err
			}
			class, why = chooseClass(s, c, d, classes)
		}
		if why != "" {
			leftOut = append(leftOut, fmt.Sprintf("claim %s %s", c.Name, why))
			continue
		}
		taken = append(taken, run.Claim{Name: c.Name, UID: c.UID, ClassName: class})
	}
	slices.SortFunc(taken, func(a, b run.Claim) int { return cmp.Compare(a.Name, b.Name) })
	return taken, leftOut, nil
}

func wantedClass(s *v1.SnapshotSchedule, c *corev1.PersistentVolumeClaim) bool {
	if len(s.Spec.StorageClassNames) == 0 {
		return true
	}
	return c.Spec.StorageClassName != nil && slices.Contains(s.Spec.StorageClassNames, *c.Spec.StorageClassName)
}

// namedClass of a claim: its annotation, else the schedule's. Empty: the snapshot controller finds the default of the driver.
func namedClass(s *v1.SnapshotSchedule, c *corev1.PersistentVolumeClaim) string {
	if name := c.Annotations[v1.AnnotationSnapshotClass]; name != "" || s.Spec.SnapshotTemplate == nil {
		return name
	}
	return ptr.Deref(s.Spec.SnapshotTemplate.SnapshotClassName, "")
}

// chooseClass of a claim: its annotation, else the schedule's, else the default of its driver (empty: the snapshot controller finds it).
// A schedule's class for another driver leaves the claim to its driver's default, so that one schedule works over mixed drivers.
func chooseClass(s *v1.SnapshotSchedule, c *corev1.PersistentVolumeClaim, driver string, classes []snapshotv1.VolumeSnapshotClass) (class, why string) {
	if driver == "" {
		return "", "has a volume that is not CSI and cannot be snapshotted"
	}
	find := func(name string) *snapshotv1.VolumeSnapshotClass {
		i := slices.IndexFunc(classes, func(k snapshotv1.VolumeSnapshotClass) bool { return k.Name == name })
		if i < 0 {
			return nil
		}
		return &classes[i]
	}
	if name := c.Annotations[v1.AnnotationSnapshotClass]; name != "" {
		switch k := find(name); {
		case k == nil:
			return "", fmt.Sprintf("names VolumeSnapshotClass %s in its annotation %s, which does not exist", name, v1.AnnotationSnapshotClass)
		case k.Driver != driver:
			return "", fmt.Sprintf("names VolumeSnapshotClass %s in its annotation %s, which is for driver %s and not for %s", name, v1.AnnotationSnapshotClass, k.Driver, driver)
		}
		return name, ""
	}
	if t := s.Spec.SnapshotTemplate; t != nil && t.SnapshotClassName != nil && *t.SnapshotClassName != "" {
		k := find(*t.SnapshotClassName)
		if k == nil {
			return "", fmt.Sprintf("cannot be taken: VolumeSnapshotClass %s of spec.snapshotTemplate.snapshotClassName does not exist", *t.SnapshotClassName)
		}
		if k.Driver == driver {
			return k.Name, ""
		}
	}
	for i := range classes {
		if classes[i].Driver == driver && classes[i].Annotations[annotationDefaultClass] == "true" {
			return "", ""
		}
	}
	return "", fmt.Sprintf("cannot be taken: no default VolumeSnapshotClass for its driver %s", driver)
}

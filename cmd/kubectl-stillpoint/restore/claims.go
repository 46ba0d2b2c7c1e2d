// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"fmt"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// Shape is what a person says about the new claims; what is left out is the original claim's.
type Shape struct {
	StorageClass string
	AccessModes  []corev1.PersistentVolumeAccessMode
	VolumeMode   corev1.PersistentVolumeMode
	Size         *resource.Quantity
}

// Storage is what could be read of the storage; all of it may be missing for want of rights.
type Storage struct {
	Contents map[string]snapshotv1.VolumeSnapshotContent // by the name of the snapshot
	Classes  map[string]storagev1.StorageClass
}

// Item is one claim to be made.
type Item struct {
	Member
	New *corev1.PersistentVolumeClaim
	// Notes are what a person should know about it.
	Notes []string
}

// Claims to be made from the members of a choice: names say what they are called, originals are the claims that exist. schedule may be nil. The
// error names every flag that is missing.
func Claims(c *Choice, names map[string]string, originals []corev1.PersistentVolumeClaim, schedule *v1.SnapshotSchedule, shape Shape, storage Storage) ([]Item, error) {
	var out []Item
	var problems []string
	missing := map[string][]string{} // by flag: the claims
	for _, m := range c.Members {
		item, flags, err := newClaim(m, names[m.Claim], originals, schedule, shape, storage)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		for _, f := range flags {
			missing[f] = append(missing[f], m.Claim)
		}
		out = append(out, item)
	}
	for _, flag := range []string{"--storage-class NAME", "--access-modes ReadWriteOnce", "--size 10Gi"} {
		if claims := missing[flag]; len(claims) > 0 {
			problems = append(problems, fmt.Sprintf("%s is needed: the original of %s does not exist any more (or has none) to take it from", flag, strings.Join(claims, ", ")))
		}
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("nothing was created: %s", strings.Join(problems, "; "))
	}
	return out, nil
}

func newClaim(m Member, name string, originals []corev1.PersistentVolumeClaim, schedule *v1.SnapshotSchedule, shape Shape, storage Storage) (item Item, missing []string, err error) {
	item.Member = m
	var original *corev1.PersistentVolumeClaim
	if i := slices.IndexFunc(originals, func(c corev1.PersistentVolumeClaim) bool { return c.Name == m.Claim }); i >= 0 {
		original = &originals[i]
		if m.ClaimUID != "" && original.UID != m.ClaimUID {
			item.Notes = append(item.Notes, fmt.Sprintf("claim %s was deleted and created again since; StorageClass and access modes are those of the present one", m.Claim))
		}
	}
	s := m.Snapshot
	item.New = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Annotations: map[string]string{v1.AnnotationRestoredFrom: s.Name}},
		Spec: corev1.PersistentVolumeClaimSpec{
			DataSource: &corev1.TypedLocalObjectReference{APIGroup: &snapshotv1.SchemeGroupVersion.Group, Kind: "VolumeSnapshot", Name: s.Name},
		},
	}
	spec := &item.New.Spec
	if original != nil {
		spec.StorageClassName = original.Spec.StorageClassName
		spec.AccessModes = original.Spec.AccessModes
		spec.VolumeMode = original.Spec.VolumeMode
	}
	follow(&item, original, schedule)
	content, known := storage.Contents[s.Name]
	if original == nil && known {
		spec.VolumeMode = content.Spec.SourceVolumeMode
	}
	override(spec, shape)
	if spec.StorageClassName == nil || *spec.StorageClassName == "" {
		missing = append(missing, "--storage-class NAME")
	}
	if len(spec.AccessModes) == 0 {
		missing = append(missing, "--access-modes ReadWriteOnce")
	}
	size := sizeOf(s, original, shape.Size)
	if size.IsZero() {
		missing = append(missing, "--size 10Gi")
	}
	if r := restoreSize(s); shape.Size != nil && shape.Size.Cmp(r) < 0 {
		return item, nil, fmt.Errorf("--size %s is less than the %s that snapshot %s needs", shape.Size, &r, s.Name)
	}
	spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: size}
	return item, missing, fits(item, content, known, storage.Classes)
}

func override(spec *corev1.PersistentVolumeClaimSpec, shape Shape) {
	if shape.StorageClass != "" {
		spec.StorageClassName = &shape.StorageClass
	}
	if len(shape.AccessModes) > 0 {
		spec.AccessModes = shape.AccessModes
	}
	if shape.VolumeMode != "" {
		spec.VolumeMode = &shape.VolumeMode
	}
}

func restoreSize(s *snapshotv1.VolumeSnapshot) resource.Quantity {
	if s.Status == nil || s.Status.RestoreSize == nil {
		return resource.Quantity{}
	}
	return *s.Status.RestoreSize
}

// sizeOf the new claim: what the snapshot needs, what the original asked for and what was said, whichever is most.
func sizeOf(s *snapshotv1.VolumeSnapshot, original *corev1.PersistentVolumeClaim, said *resource.Quantity) resource.Quantity {
	size := restoreSize(s)
	if original != nil {
		if q := original.Spec.Resources.Requests[corev1.ResourceStorage]; q.Cmp(size) > 0 {
			size = q
		}
	}
	if said != nil && said.Cmp(size) > 0 {
		size = *said
	}
	return size
}

// follow keeps the new claim under the schedule: it gets the labels by which the schedule selects, and the original's own class. Other labels stay
// behind: what manages the original by them must not take the new claim for its own. original may be nil: it had what matchLabels asks for.
func follow(item *Item, original *corev1.PersistentVolumeClaim, schedule *v1.SnapshotSchedule) {
	if original != nil && original.Annotations[v1.AnnotationSnapshotClass] != "" {
		item.New.Annotations[v1.AnnotationSnapshotClass] = original.Annotations[v1.AnnotationSnapshotClass]
	}
	if schedule == nil {
		return
	}
	for k, v := range schedule.Spec.ClaimSelector.MatchLabels {
		metav1.SetMetaDataLabel(&item.New.ObjectMeta, k, v)
	}
	for _, e := range schedule.Spec.ClaimSelector.MatchExpressions {
		if original == nil {
			item.Notes = append(item.Notes, fmt.Sprintf("schedule %s selects claims by label %s: set it as you want it, the original is not there to copy it from", schedule.Name, e.Key))
			continue
		}
		if v, ok := original.Labels[e.Key]; ok {
			metav1.SetMetaDataLabel(&item.New.ObjectMeta, e.Key, v)
		}
	}
}

// fits: the StorageClass is of the driver that holds the snapshot, and the volume mode the one that was snapshotted. Both are told only as
// far as they could be read; the provisioner judges in any case.
func fits(item Item, content snapshotv1.VolumeSnapshotContent, known bool, classes map[string]storagev1.StorageClass) error {
	if !known {
		return nil
	}
	if name := item.New.Spec.StorageClassName; name != nil {
		if class, ok := classes[*name]; ok && class.Provisioner != content.Spec.Driver {
			return fmt.Errorf("StorageClass %s is of driver %s and snapshot %s of %s: choose one of that driver with --storage-class", *name, class.Provisioner, item.Snapshot.Name, content.Spec.Driver)
		}
	}
	was, is := content.Spec.SourceVolumeMode, item.New.Spec.VolumeMode
	if was != nil && modeOf(was) != modeOf(is) {
		return fmt.Errorf("snapshot %s is of a volume with volumeMode %s and the new claim has %s: set --volume-mode %s", item.Snapshot.Name, *was, modeOf(is), *was)
	}
	return nil
}

func modeOf(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	if m == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *m
}

// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// ChooseGroup among the claims that the schedule's selector matches, for a group snapshot. The storage takes every claim with the labels or none, so a
// claim that the schedule would leave out refuses the group; refused says so in words. groupDriver is that of the VolumeGroupSnapshotClass, driver tells a
// claim's as in Choose; nil: drivers are not compared. Without any claim to take there is nothing to refuse.
func ChooseGroup(s *v1.SnapshotSchedule, matching []corev1.PersistentVolumeClaim, groupDriver string,
	driver func(*corev1.PersistentVolumeClaim) (string, error)) (taken []run.Claim, leftOut []string, refused string, err error) {
	var cannot, unwanted []string
	for i := range matching {
		c := &matching[i]
		why := ""
		switch {
		case c.Annotations[v1.AnnotationExclude] == "true":
			unwanted = append(unwanted, fmt.Sprintf("claim %s is annotated %s", c.Name, v1.AnnotationExclude))
			continue
		case !wantedClass(s, c):
			unwanted = append(unwanted, fmt.Sprintf("claim %s is of no StorageClass in spec.storageClassNames", c.Name))
			continue
		case c.DeletionTimestamp != nil:
			why = "is being deleted"
		case c.Status.Phase != corev1.ClaimBound:
			why = "is not bound"
		case driver != nil:
			d, err := driver(c)
			if err != nil {
				return nil, nil, "", err
			}
			switch d {
			case groupDriver:
			case "":
				why = "has a volume that is not CSI and cannot be snapshotted"
			default:
				why = fmt.Sprintf("is of driver %s, and VolumeGroupSnapshotClass %s is for %s", d, run.GroupClass(s), groupDriver)
			}
		}
		if why != "" {
			cannot = append(cannot, fmt.Sprintf("claim %s %s", c.Name, why))
			continue
		}
		taken = append(taken, run.Claim{Name: c.Name, UID: c.UID})
	}
	slices.SortFunc(taken, func(a, b run.Claim) int { return cmp.Compare(a.Name, b.Name) })
	if wrong := slices.Concat(cannot, unwanted); len(taken) > 0 && len(wrong) > 0 {
		more := ""
		if len(wrong) > 1 {
			more = fmt.Sprintf(", and %d more", len(wrong)-1)
		}
		refused = fmt.Sprintf("%s%s, and a group snapshot takes every claim that spec.claimSelector.matchLabels selects, or none: give the claims to take a label "+
			"that the others do not have", wrong[0], more)
	}
	return taken, cannot, refused, nil
}

// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/claims"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// group of the claims that match, or why they cannot be taken as one.
func (m *planner) group(ctx context.Context, matching []corev1.PersistentVolumeClaim, driver func(*corev1.PersistentVolumeClaim) (string, error), out *run.Survey) {
	var class groupv1.VolumeGroupSnapshotClass
	name := run.GroupClass(m.s)
	err := m.k.Get(ctx, client.ObjectKey{Name: name}, &class)
	switch {
	case len(m.operator.namespaces) > 0:
		driver = nil // such an operator reads nothing of the cluster either
	case apierrors.IsNotFound(err):
		out.NoGroup = &run.Problem{Reason: v1.ReasonGroupsUnavailable, Message: fmt.Sprintf("VolumeGroupSnapshotClass %s of spec.snapshotTemplate.groupSnapshotClassName does not exist, or the cluster does not serve group snapshots", name)}
		return
	case err != nil:
		m.blind = true
		m.unknown("of which driver VolumeGroupSnapshotClass "+name+" is", err)
		driver = nil
	}
	var refused string
	if out.Claims, out.LeftOut, refused, err = claims.ChooseGroup(m.s, matching, class.Driver, driver); err != nil {
		m.blind = true
		m.unknown("of which driver claims are", err)
	}
	if refused != "" {
		out.NoGroup = &run.Problem{Reason: v1.ReasonInvalidGroup, Message: refused}
	}
}

// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	annotationProvisioner     = "volume.kubernetes.io/storage-provisioner"
	annotationProvisionerBeta = "volume.beta.kubernetes.io/storage-provisioner"
)

// Driver of a bound claim, read live where the claim itself does not say; empty: its volume is not CSI.
func Driver(ctx context.Context, live client.Reader, c *corev1.PersistentVolumeClaim) (string, error) {
	for _, a := range []string{annotationProvisioner, annotationProvisionerBeta} {
		if p := c.Annotations[a]; p != "" {
			return p, nil
		}
	}
	// A volume that was bound by hand has no provisioner: its PersistentVolume tells.
	var pv corev1.PersistentVolume
	err := live.Get(ctx, types.NamespacedName{Name: c.Spec.VolumeName}, &pv)
	if err == nil {
		if pv.Spec.CSI != nil {
			return pv.Spec.CSI.Driver, nil
		}
		return "", nil
	}
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading PersistentVolume %s of claim %s/%s: %w", c.Spec.VolumeName, c.Namespace, c.Name, err)
	}
	if c.Spec.StorageClassName == nil {
		return "", nil
	}
	var class storagev1.StorageClass
	if err := live.Get(ctx, types.NamespacedName{Name: *c.Spec.StorageClassName}, &class); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading StorageClass %s: %w", *c.Spec.StorageClassName, err)
	}
	return class.Provisioner, nil
}

// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// CacheOptions of an operator that works in the given namespaces; none: in all. They keep the operator's memory to its own objects: of
// VolumeSnapshots only those that carry its label, of completed runs only what the schedule's status shows.
func CacheOptions(namespaces ...string) cache.Options {
	ours, err := labels.NewRequirement(v1.LabelSchedule, selection.Exists, nil)
	if err != nil {
		panic(err) // a constant label
	}
	var watched map[string]cache.Config
	for _, ns := range namespaces {
		if watched == nil {
			watched = map[string]cache.Config{}
		}
		watched[ns] = cache.Config{}
	}
	return cache.Options{
		DefaultNamespaces: watched,
		DefaultTransform:  cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&snapshotv1.VolumeSnapshot{}: {Label: labels.NewSelector().Add(*ours)},
			&v1.SnapshotRun{}:            {Transform: stripRun},
		},
	}
}

// stripRun drops the details of a completed run: nothing is decided from them any more.
func stripRun(in any) (any, error) {
	o, ok := in.(*v1.SnapshotRun)
	if !ok {
		return in, nil
	}
	o.ManagedFields = nil
	if o.Status.Phase == v1.PhaseCompleted {
		o.Status.Plan = nil
		o.Status.Snapshots = nil
		for i := range o.Status.Hooks {
			o.Status.Hooks[i].Targets = nil
		}
	}
	return o, nil
}

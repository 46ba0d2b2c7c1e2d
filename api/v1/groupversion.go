// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of both kinds.
var GroupVersion = schema.GroupVersion{Group: "snapscheduler.backube", Version: "v1"}

// AddToScheme registers both kinds and their lists.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &SnapshotSchedule{}, &SnapshotScheduleList{}, &SnapshotRun{}, &SnapshotRunList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

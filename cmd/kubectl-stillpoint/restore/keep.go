// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// Keep protects a snapshot from retention while a claim of that name is made from it, and says whether it changed the object. A label
// that a person set stays theirs; several restores share one that is theirs.
func Keep(o metav1.Object, claim string) bool {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	list := restoring(annotations)
	kept := labels[v1.LabelRetention] == v1.RetentionKeep
	if (kept && len(list) == 0) || slices.Contains(list, claim) {
		return false
	}
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[v1.LabelRetention] = v1.RetentionKeep
	annotations[v1.AnnotationRestoring] = strings.Join(append(list, claim), ",")
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	return true
}

// Holds says whether a snapshot is protected for the sake of a claim of that name.
func Holds(o metav1.Object, claim string) bool {
	return slices.Contains(restoring(o.GetAnnotations()), claim)
}

// Done takes the protection off again, if no other restore needs it and it is not a person's, and says whether it changed the object.
func Done(o metav1.Object, claim string) bool {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	list := restoring(annotations)
	i := slices.Index(list, claim)
	if i < 0 {
		return false
	}
	list = slices.Delete(list, i, i+1)
	if len(list) > 0 {
		annotations[v1.AnnotationRestoring] = strings.Join(list, ",")
	} else {
		delete(annotations, v1.AnnotationRestoring)
		if labels[v1.LabelRetention] == v1.RetentionKeep {
			delete(labels, v1.LabelRetention)
		}
	}
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	return true
}

// Pin protects a snapshot for good: from now on the label is a person's. It says whether it changed the object.
func Pin(o metav1.Object) bool {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	if labels[v1.LabelRetention] == v1.RetentionKeep && annotations[v1.AnnotationRestoring] == "" {
		return false
	}
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1.LabelRetention] = v1.RetentionKeep
	delete(annotations, v1.AnnotationRestoring)
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	return true
}

// Unpin gives a snapshot back to retention, whoever protected it. It says whether it changed the object.
func Unpin(o metav1.Object) bool {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	if labels[v1.LabelRetention] != v1.RetentionKeep && annotations[v1.AnnotationRestoring] == "" {
		return false
	}
	if labels[v1.LabelRetention] == v1.RetentionKeep {
		delete(labels, v1.LabelRetention)
	}
	delete(annotations, v1.AnnotationRestoring)
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	return true
}

func restoring(annotations map[string]string) []string {
	var out []string
	for _, c := range strings.Split(annotations[v1.AnnotationRestoring], ",") {
		if c != "" {
			out = append(out, c)
		}
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// state of the protection: the label, a slash, the claims that are made meanwhile.
func state(o metav1.Object) string {
	return o.GetLabels()[v1.LabelRetention] + "/" + o.GetAnnotations()[v1.AnnotationRestoring]
}

func TestKeep(t *testing.T) {
	type act struct {
		name  string
		do    func(metav1.Object) bool
		acted bool
		want  string
	}
	keep := func(c string, acted bool, want string) act {
		return act{"keep " + c, func(o metav1.Object) bool { return Keep(o, c) }, acted, want}
	}
	done := func(c string, acted bool, want string) act {
		return act{"done " + c, func(o metav1.Object) bool { return Done(o, c) }, acted, want}
	}
	pin := func(acted bool, want string) act { return act{"pin", Pin, acted, want} }
	unpin := func(acted bool, want string) act { return act{"unpin", Unpin, acted, want} }
	for name, acts := range map[string][]act{
		"a restore takes off what it put there":         {keep("x", true, "keep/x"), keep("x", false, "keep/x"), done("x", true, "/"), done("x", false, "/")},
		"a person's label stays":                        {pin(true, "keep/"), keep("x", false, "keep/"), done("x", false, "keep/")},
		"the last of two restores takes it off":         {keep("x", true, "keep/x"), keep("y", true, "keep/x,y"), done("x", true, "keep/y"), done("y", true, "/")},
		"in the other order, too":                       {keep("x", true, "keep/x"), keep("y", true, "keep/x,y"), done("y", true, "keep/x"), done("x", true, "/")},
		"a person's label goes before a restore's":      {keep("x", true, "keep/x"), pin(true, "keep/"), done("x", false, "keep/")},
		"a person gives back what a crashed one left":   {keep("x", true, "keep/x"), unpin(true, "/"), unpin(false, "/")},
		"a person who pins twice changes nothing":       {pin(true, "keep/"), pin(false, "keep/"), unpin(true, "/")},
		"what was given back meanwhile is not an error": {keep("x", true, "keep/x"), unpin(true, "/"), done("x", false, "/")},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := &metav1.ObjectMeta{}
			for _, a := range acts {
				g.Expect(a.do(o)).To(Equal(a.acted), a.name)
				g.Expect(state(o)).To(Equal(a.want), a.name)
			}
		})
	}
	t.Run("another value of the label is nobody's protection", func(t *testing.T) {
		g := NewWithT(t)
		o := &metav1.ObjectMeta{Labels: map[string]string{v1.LabelRetention: "other"}}
		g.Expect(Unpin(o)).To(BeFalse())
		g.Expect(state(o)).To(Equal("other/"))
		g.Expect(Keep(o, "x")).To(BeTrue())
		g.Expect(state(o)).To(Equal("keep/x"))
	})
}

// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// What the stories expect can fail: each of these worlds is broken, and some story notices.
func TestABrokenWorldIsNoticed(t *testing.T) {
	t.Parallel()
	hooked, held := plots[1], plots[2]
	tests := map[string]struct {
		plot   plot
		broken func(h *story) broken
		// killedAfter calls like this, each in turn, the process ends; "": nothing fails.
		killedAfter string
		want        string
		lag         lag
	}{
		"the post hook releases nothing": {hooked, deafTo("release"), "", "is left quiesced", lag{}},
		"the pre hook quiesces nothing":  {hooked, deafTo("quiesce"), "", "was cut while something was not quiesced", lag{}},
		"a claim is not written although the answer says so": {hooked, answering(func(verb string, o client.Object, do func() error) error {
			if r, ok := o.(*v1.SnapshotRun); ok && verb == "patch status of" && claimed(r) {
				return nil
			}
			return do()
		}), "exec quiesce", "began 2 times", lag{}},
		"a run that exists is created under another name": {hooked, func(h *story) broken {
			return broken{client: func(verb string, o client.Object, do func() error) error {
				if verb == "create" && h.server.newest[objectKey{kindRun, o.GetName()}] != nil {
					o.SetName(o.GetName() + "-again")
				}
				return do()
			}}
		}, "create SnapshotRun", "there is another run", lag{kind: kindRun, by: 1}},
		"the finalizer stays": {hooked, answering(func(verb string, o client.Object, do func() error) error {
			if _, ok := o.(*v1.SnapshotRun); ok && verb == "patch" {
				return nil
			}
			return do()
		}), "", "with finalizers", lag{}},
		"every snapshot is called consistent when it is made": {held, answering(func(verb string, o client.Object, do func() error) error {
			if o.GetLabels()[v1.LabelConsistency] != "" && verb == "create" {
				o.GetLabels()[v1.LabelConsistency] = v1.ConsistencyApplication
			}
			return do()
		}), "create VolumeSnapshot", `consistency="application" and not "crash"`, lag{}},
		"retention takes a snapshot that is to be kept": {hooked, func(h *story) broken {
			return broken{client: func(verb string, o client.Object, do func() error) error {
				if verb == "delete" && strings.HasPrefix(o.GetName(), "a-") {
					o.SetName("keep-hourly")
					return h.server.Delete(h.t.Context(), o)
				}
				return do()
			}}
		}, "", "keep-hourly does not exist", lag{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			noticed := func(faults map[int]fault) (*story, bool) {
				h := newStory(t, tt.plot, tt.lag)
				h.broken, h.faults = tt.broken(h), faults
				h.play()
				h.judge()
				return h, strings.Contains(strings.Join(h.complaints, "\n"), tt.want)
			}
			h, found := noticed(nil)
			if found != (tt.killedAfter == "") {
				t.Errorf("where nothing fails, %q is noticed: %t", tt.want, found)
			}
			for i, c := range h.made {
				if tt.killedAfter != "" && strings.HasPrefix(c.what, tt.killedAfter) && !found {
					_, found = noticed(map[int]fault{i + 1: killAfter})
				}
			}
			if !found {
				t.Errorf("nobody notices: %s", tt.want)
			}
		})
	}
}

func deafTo(verb string) func(*story) broken {
	return func(*story) broken { return broken{deaf: func(v string) bool { return v == verb }} }
}

func answering(f func(verb string, o client.Object, do func() error) error) func(*story) broken {
	return func(*story) broken { return broken{client: f} }
}

func claimed(r *v1.SnapshotRun) bool {
	for i := range r.Status.Hooks {
		for j := range r.Status.Hooks[i].Targets {
			if r.Status.Hooks[i].Targets[j].Claim != nil {
				return true
			}
		}
	}
	return false
}

// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

func creatingSchedules(g *guarded, t *testing.T) {
	withoutHooks := plainSchedule()
	withoutHooks.Spec.ServiceAccountName = "hooks"
	onlyPost := hookedSchedule("", "")
	onlyPost.Spec.PreHooks = nil
	onlyElsewhere := hookedSchedule("", others)
	onlyElsewhere.Spec.PreHooks = nil
	type refusals map[string][]string // because of what, who
	tests := map[string]struct {
		schedule *v1.SnapshotSchedule
		accepted []string
		refused  refusals
	}{
		"without hooks":                 {plainSchedule(), []string{writer, gitops, execer, editor}, nil},
		"without hooks, and an account": {withoutHooks, []string{writer, gitops, execer, editor}, nil},
		"with a pre hook":               {hookedSchedule(""), []string{execer, podder, editor, everywhere}, refusals{needsExec: {writer, gitops}}},
		"with a post hook":              {onlyPost, []string{execer, podder, editor, everywhere}, refusals{needsExec: {writer, gitops}}},
		"with a hook that names the schedule's namespace": {hookedSchedule("", tenants), []string{execer, editor}, refusals{needsExec: {writer}}},
		"with an account": {hookedSchedule("hooks", ""), []string{podder, tokener, impersonator, editor},
			refusals{needsExec: {writer, gitops}, needsAccount: {execer, everywhere}}},
		"with an account that one may not act as": {hookedSchedule("hooks-of-others", ""), []string{podder, editor},
			refusals{"ServiceAccount hooks-of-others": {tokener, impersonator, execer}}},
		// Whoever may exec in the other namespace only, has nothing to say in this one.
		"with hooks in another namespace only": {onlyElsewhere, []string{everywhere}, refusals{needsExec: {writer}, needsAll: {execer, podder, editor}}},
		"with hooks in 1 more namespace":       {hookedSchedule("", namespaces(1)...), []string{everywhere}, refusals{needsExec: {writer}, needsAll: {execer, podder, editor}}},
		"with hooks in 2 more namespaces":      {hookedSchedule("", namespaces(2)...), []string{everywhere}, refusals{needsExec: {writer}, needsAll: {execer, podder, editor}}},
		"with hooks in 20 more namespaces":     {hookedSchedule("", namespaces(20)...), []string{everywhere}, refusals{needsExec: {writer}, needsAll: {execer, podder, editor}}},
		"with hooks in 1 more namespace and an account": {hookedSchedule("hooks", namespaces(1)...), []string{podder, tokener, impersonator, editor},
			refusals{needsExec: {writer}, needsAccount: {execer, everywhere}}},
		"with hooks in 2 more namespaces and an account": {hookedSchedule("hooks", namespaces(2)...), []string{podder, tokener, impersonator, editor},
			refusals{needsExec: {writer}, needsAccount: {execer, everywhere}}},
		"with hooks in 20 more namespaces and an account": {hookedSchedule("hooks", namespaces(20)...), []string{podder, tokener, impersonator, editor},
			refusals{needsExec: {writer}, needsAccount: {execer, everywhere}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g.attempt(t, creations(tt.schedule), "", tt.accepted...)
			for because, users := range tt.refused {
				g.attempt(t, creations(tt.schedule), because, users...)
			}
		})
	}
}

// existing puts an object there, whoever could have written it, until the test ends.
func existing[T client.Object](g *guarded, t *testing.T, o T) T {
	t.Helper()
	NewWithT(t).Expect(g.root.Create(t.Context(), o)).To(Succeed())
	t.Cleanup(func() {
		free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := client.IgnoreNotFound(g.root.Patch(contextOfCleanup, o, free)); err != nil {
			t.Error(err)
		}
		if err := client.IgnoreNotFound(g.root.Delete(contextOfCleanup, o)); err != nil {
			t.Error(err)
		}
	})
	return o
}

func changingSchedules(g *guarded, t *testing.T) {
	two := hookedSchedule("", "", "")
	two.Spec.PreHooks = append(two.Spec.PreHooks, v1.PreHook{Hook: hookIn("")})
	two.Spec.PreHooks[1].Command = []string{"fsfreeze", "--freeze", "/data"}
	two.Spec.ClaimSelector.MatchLabels = map[string]string{"app": "db"}
	asAccount := hookedSchedule("hooks", "")
	type change struct {
		from *v1.SnapshotSchedule
		do   func(*v1.SnapshotSchedule)
	}
	needingExec := map[string]change{
		"hooks come to one without": {plainSchedule(), func(s *v1.SnapshotSchedule) { s.Spec.PreHooks = two.Spec.PreHooks }},
		"another command":           {two, func(s *v1.SnapshotSchedule) { s.Spec.PreHooks[0].Command = []string{"sh", "-c", "sync"} }},
		"one more argument":         {two, func(s *v1.SnapshotSchedule) { s.Spec.PostHooks[1].Command = []string{"sync", ""} }},
		"other labels of the pods":  {two, func(s *v1.SnapshotSchedule) { s.Spec.PreHooks[0].PodSelector.MatchLabels["app"] = "other" }},
		"all pods":                  {two, func(s *v1.SnapshotSchedule) { s.Spec.PostHooks[0].PodSelector = &metav1.LabelSelector{} }},
		"another container":         {two, func(s *v1.SnapshotSchedule) { s.Spec.PreHooks[0].Container = "admin" }},
		"another timeout":           {two, func(s *v1.SnapshotSchedule) { s.Spec.PreHooks[0].TimeoutSeconds = ptr.To(int32(7)) }},
		"a hook is held": {two, func(s *v1.SnapshotSchedule) {
			s.Spec.PreHooks[0].Mode, s.Spec.PreHooks[0].ExpectOutput, s.Spec.PreHooks[0].ExpectReleaseOutput = v1.ModeHold, "a", "b"
		}},
		"the order": {two, func(s *v1.SnapshotSchedule) { p := s.Spec.PreHooks; p[0], p[1] = p[1], p[0] }},
		"a pre hook becomes a post hook": {two, func(s *v1.SnapshotSchedule) {
			s.Spec.PostHooks = append([]v1.PostHook{{Hook: s.Spec.PreHooks[1].Hook}}, s.Spec.PostHooks...)
			s.Spec.PreHooks = s.Spec.PreHooks[:1]
		}},
		"a hook goes":      {two, func(s *v1.SnapshotSchedule) { s.Spec.PreHooks = s.Spec.PreHooks[:1] }},
		"all hooks go":     {two, func(s *v1.SnapshotSchedule) { s.Spec.PreHooks, s.Spec.PostHooks = nil, nil }},
		"other claims":     {two, func(s *v1.SnapshotSchedule) { s.Spec.ClaimSelector.MatchLabels["app"] = "other" }},
		"all claims":       {two, func(s *v1.SnapshotSchedule) { s.Spec.ClaimSelector = metav1.LabelSelector{} }},
		"the account goes": {asAccount, func(s *v1.SnapshotSchedule) { s.Spec.ServiceAccountName = "" }},
		"with a change of what anybody may": {two, func(s *v1.SnapshotSchedule) {
			s.Spec.Schedule, s.Spec.PreHooks[0].Command, s.Labels = "@daily", []string{"id"}, map[string]string{"a": "b"}
		}},
	}
	for name, tt := range needingExec {
		t.Run("needs exec: "+name, func(t *testing.T) {
			before := existing(g, t, tt.from.DeepCopy())
			after := before.DeepCopy()
			tt.do(after)
			g.attempt(t, changes(before, after), needsExec, writer, gitops)
			g.attempt(t, changes(before, after), "", execer, podder, everywhere, editor)
		})
	}

	needingTheAccount := map[string]change{
		"an account comes":              {two, func(s *v1.SnapshotSchedule) { s.Spec.ServiceAccountName = "hooks" }},
		"another account":               {hookedSchedule("others", ""), func(s *v1.SnapshotSchedule) { s.Spec.ServiceAccountName = "hooks" }},
		"what is done with the account": {asAccount, func(s *v1.SnapshotSchedule) { s.Spec.PreHooks[0].Command = []string{"id"} }},
		"hooks come to one without, that has an account": {func() *v1.SnapshotSchedule {
			s := plainSchedule()
			s.Spec.ServiceAccountName = "hooks"
			return s
		}(), func(s *v1.SnapshotSchedule) { s.Spec.PreHooks = two.Spec.PreHooks }},
	}
	for name, tt := range needingTheAccount {
		t.Run("needs the account: "+name, func(t *testing.T) {
			before := existing(g, t, tt.from.DeepCopy())
			after := before.DeepCopy()
			tt.do(after)
			g.attempt(t, changes(before, after), needsExec, writer)
			g.attempt(t, changes(before, after), needsAccount, execer, everywhere)
			g.attempt(t, changes(before, after), "", podder, tokener, impersonator, editor)
		})
	}

	t.Run("needs exec everywhere: a hook moves to another namespace", func(t *testing.T) {
		before := existing(g, t, two.DeepCopy())
		after := before.DeepCopy()
		after.Spec.PostHooks[1].Namespace = others
		g.attempt(t, changes(before, after), needsAll, execer, podder, editor)
		g.attempt(t, changes(before, after), needsExec, writer)
		g.attempt(t, changes(before, after), "", everywhere)
	})

	needingNothing := map[string]change{
		"nothing":                       {asAccount, func(*v1.SnapshotSchedule) {}},
		"nothing, with hooks elsewhere": {hookedSchedule("", namespaces(20)...), func(*v1.SnapshotSchedule) {}},
		"when":                          {asAccount, func(s *v1.SnapshotSchedule) { s.Spec.Schedule, s.Spec.TimeZone = "@daily", "Europe/Vienna" }},
		"it is disabled":                {asAccount, func(s *v1.SnapshotSchedule) { s.Spec.Disabled = true }},
		"it is enabled": {func() *v1.SnapshotSchedule {
			s := hookedSchedule("hooks", "")
			s.Spec.Disabled = true
			return s
		}(), func(s *v1.SnapshotSchedule) { s.Spec.Disabled = false }},
		"how long snapshots stay": {asAccount, func(s *v1.SnapshotSchedule) { s.Spec.Retention.MaxCount = ptr.To(int32(3)) }},
		"the snapshots' class": {asAccount, func(s *v1.SnapshotSchedule) {
			s.Spec.SnapshotTemplate = &v1.SnapshotTemplateSpec{SnapshotClassName: ptr.To("fast")}
		}},
		"how long it may be quiesced": {asAccount, func(s *v1.SnapshotSchedule) { s.Spec.MaxQuiesceSeconds = ptr.To(int32(60)) }},
		"labels and annotations": {asAccount, func(s *v1.SnapshotSchedule) {
			s.Labels, s.Annotations = map[string]string{"team": "shop"}, map[string]string{v1.AnnotationRelease: "1"}
		}},
		"finalizers and owners": {asAccount, func(s *v1.SnapshotSchedule) {
			s.Finalizers = []string{"example.com/mine"}
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "b"}}
		}},
		"claims of one without hooks":      {plainSchedule(), func(s *v1.SnapshotSchedule) { s.Spec.ClaimSelector = two.Spec.ClaimSelector }},
		"the account of one without hooks": {plainSchedule(), func(s *v1.SnapshotSchedule) { s.Spec.ServiceAccountName = "hooks" }},
	}
	for name, tt := range needingNothing {
		t.Run("needs nothing: "+name, func(t *testing.T) {
			before := existing(g, t, tt.from.DeepCopy())
			after := before.DeepCopy()
			tt.do(after)
			g.attempt(t, changes(before, after), "", writer, gitops, execer, editor)
		})
	}
}

// GitOps tools write with a ServiceAccount. One that may not exec keeps a schedule with hooks as it is, and changes everything else about it.
func applyingSchedules(g *guarded, t *testing.T) {
	e := NewWithT(t)
	manifest := hookedSchedule("hooks", "")
	const manager = "kustomize-controller"
	e.Expect(apply(t.Context(), g.as[gitops], manifest, "applied", manager)).To(MatchError(ContainSubstring(needsExec)))
	e.Expect(apply(t.Context(), g.as[podder], manifest, "applied", manager)).To(Succeed(), "somebody who may has to create it")
	applied := &v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: tenants, Name: "applied"}}
	t.Cleanup(func() {
		if err := g.root.Delete(contextOfCleanup, applied); err != nil {
			t.Error(err)
		}
	})

	e.Expect(apply(t.Context(), g.as[gitops], manifest, "applied", manager)).To(Succeed(), "as it is")
	e.Expect(apply(t.Context(), g.as[gitops], manifest, "applied", "another-manager")).To(Succeed(), "as it is, in another name")
	manifest.Spec.PreHooks[0].Command = []string{"id"}
	e.Expect(apply(t.Context(), g.as[gitops], manifest, "applied", manager)).To(MatchError(ContainSubstring(needsExec)), "another command")
	e.Expect(apply(t.Context(), g.as[execer], manifest, "applied", manager)).To(MatchError(ContainSubstring(needsAccount)), "another command")
	manifest.Spec.PreHooks[0].Command = []string{"sync"}
	manifest.Spec.Schedule, manifest.Spec.Disabled = "@daily", true
	manifest.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "apps"}
	e.Expect(apply(t.Context(), g.as[gitops], manifest, "applied", manager)).To(Succeed(), "at another time")
	e.Expect(g.root.Get(t.Context(), client.ObjectKeyFromObject(applied), applied)).To(Succeed())
	e.Expect(applied.Spec.Schedule).To(Equal("@daily"))

	e.Expect(g.as[podder].Patch(t.Context(), applied.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"postHooks":null}}`)))).To(Succeed())
	e.Expect(apply(t.Context(), g.as[gitops], manifest, "applied", manager)).To(MatchError(ContainSubstring(needsExec)), "putting hooks back is a change")
	manifest.Spec.PreHooks = nil
	e.Expect(apply(t.Context(), g.as[gitops], manifest, "applied", manager)).To(MatchError(ContainSubstring(needsExec)), "leaving hooks out removes them")

	// A tool that applies on the client's side patches what differs from the annotation of the last time.
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}},"spec":{"schedule":"@weekly"}}`))
	e.Expect(g.as[gitops].Patch(t.Context(), applied.DeepCopy(), patch)).To(Succeed())
}

// The biggest schedule that the CRD and etcd take stays within what the API server spends on a policy.
func schedulesOfAnySize(g *guarded, t *testing.T) {
	big := hookedSchedule("hooks")
	big.Spec.PreHooks, big.Spec.PostHooks = nil, nil
	for i := range 32 {
		h := hookIn("elsewhere" + strings.Repeat("x", i))
		h.Command = []string{"sync"}
		for range 5 {
			h.Command = append(h.Command, strings.Repeat("y", 4096))
		}
		big.Spec.PreHooks = append(big.Spec.PreHooks, v1.PreHook{Hook: h})
		big.Spec.PostHooks = append(big.Spec.PostHooks, v1.PostHook{Hook: h})
	}
	g.attempt(t, creations(big), needsExec, writer)
	g.attempt(t, creations(big), needsAccount, execer)
	g.attempt(t, creations(big), "", podder, impersonator, editor)
	before := existing(g, t, big.DeepCopy())
	after := before.DeepCopy()
	after.Spec.PostHooks[31].Command[5] += "z"
	after.Spec.PostHooks[31].Command[5] = after.Spec.PostHooks[31].Command[5][1:]
	g.attempt(t, changes(before, after), needsExec, writer)
	g.attempt(t, changes(before, after), "", podder, impersonator)
	same := before.DeepCopy()
	same.Spec.Disabled = true
	g.attempt(t, changes(before, same), "", writer, gitops)
}

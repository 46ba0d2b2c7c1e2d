// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/hooks"
	"github.com/stillpoint-operator/stillpoint/internal/calendar"
	"github.com/stillpoint-operator/stillpoint/internal/claims"
	"github.com/stillpoint-operator/stillpoint/internal/retention"
	"github.com/stillpoint-operator/stillpoint/internal/run"
	"github.com/stillpoint-operator/stillpoint/internal/snapshots"
)

// planner makes one plan: it gathers what the operator would gather and lets the operator's own code decide.
type planner struct {
	*Plan
	k       *kube
	s       *v1.SnapshotSchedule
	now     time.Time
	drivers map[string]string // by claim
	// operator that would do it; the flags' defaults if noOperator says why none was found.
	operator   operatorFacts
	noOperator error
	// blind: something that decides could not be read, so that the outcome is unknown.
	blind bool
}

func (p *program) makePlan(ctx context.Context, k *kube, s *v1.SnapshotSchedule) *Plan {
	m := &planner{Plan: &Plan{Schedule: s.Name, Namespace: s.Namespace, Suspended: s.Spec.Disabled}, k: k, s: s, now: p.Clock.Now(), drivers: map[string]string{}}
	m.operator, m.noOperator = k.operator(ctx, s.Namespace)
	zone := m.calendar()
	m.decide(m.survey(ctx))
	m.retention(ctx, zone)
	if m.blind {
		m.Outcome = outcomeUnknown
	}
	return m.Plan
}

// unknown notes what could not be read, in one sentence.
func (m *planner) unknown(what string, err error) {
	why := err.Error()
	if apierrors.IsForbidden(err) {
		why = "you may not: " + why
	}
	m.Unknown = append(m.Unknown, what+": "+why)
}

func (m *planner) calendar() *time.Location {
	next, zone := slots(m.s, m.now, shownSlots)
	m.TimeZone = zone.String()
	spread := calendar.Spread(fmt.Sprintf("%s/%s/%s", m.s.Namespace, m.s.Name, m.s.UID), ptr.Deref(m.s.Spec.SpreadSeconds, 0))
	for _, t := range next {
		m.Slots = append(m.Slots, PlannedSlot{Slot: t, Starts: t.Add(spread)})
	}
	return zone
}

// survey what a run could take and where its hooks would run, as the operator does when it begins one.
func (m *planner) survey(ctx context.Context) *run.Survey {
	out := &run.Survey{}
	pre, post, err := run.PlanHooks(m.s, m.operator.rules)
	if err != nil {
		return out // decide finds the same error
	}
	m.claims(ctx, out)
	all := slices.Concat(pre, post)
	targets := m.targets(ctx, all)
	m.rights(ctx, all, targets)
	for i := range all {
		stage := v1.StagePre
		if i >= len(pre) {
			stage = v1.StagePost
		}
		// A terminating pod is none to quiesce.
		targets[i].Targets = slices.DeleteFunc(targets[i].Targets, func(t run.Target) bool { return t.Terminating })
		m.hook(stage, &all[i], targets[i])
	}
	out.Pre, out.Post = targets[:len(pre)], targets[len(pre):]
	return out
}

func (m *planner) hook(stage v1.HookStage, h *v1.PlannedHook, t run.HookTargets) {
	p := PlannedHook{Stage: stage, Name: h.Name, Namespace: h.Namespace, Selector: metav1.FormatLabelSelector(&h.PodSelector), Policy: string(h.TargetPolicy),
		Timeout: (time.Duration(h.TimeoutSeconds) * time.Second).String()}
	if h.Mode == v1.ModeHold {
		p.Mode = string(h.Mode)
	}
	for _, x := range t.Targets {
		p.Containers = append(p.Containers, x.Namespace+"/"+x.Pod+"/"+x.Container)
	}
	for _, x := range t.Problems {
		p.Problems = append(p.Problems, x.Message)
	}
	m.Hooks = append(m.Hooks, p)
}

func (m *planner) claims(ctx context.Context, out *run.Survey) {
	selector, err := metav1.LabelSelectorAsSelector(&m.s.Spec.ClaimSelector)
	if err != nil {
		out.LeftOut = []string{"spec.claimSelector is not valid: " + err.Error()}
		return
	}
	var list corev1.PersistentVolumeClaimList
	if err := m.k.List(ctx, &list, client.InNamespace(m.s.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		m.blind = true
		m.unknown("which claims would be taken", err)
		return
	}
	driver := func(c *corev1.PersistentVolumeClaim) (string, error) {
		driver, err := claims.Driver(ctx, m.k, c)
		m.drivers[c.Name] = driver
		return driver, err
	}
	if run.GroupClass(m.s) != "" {
		m.group(ctx, list.Items, driver, out)
		return
	}
	var classes snapshotv1.VolumeSnapshotClassList
	switch err := m.k.List(ctx, &classes); {
	case len(m.operator.namespaces) > 0:
		driver = nil // such an operator reads nothing of the cluster either
	case apierrors.IsForbidden(err):
		m.blind = true
		m.unknown("whether there is a VolumeSnapshotClass for each claim", err)
		driver = nil
	case err != nil:
		m.blind = true
		m.unknown("whether there is a VolumeSnapshotClass for each claim", err)
		return
	}
	if out.Claims, out.LeftOut, err = claims.Choose(m.s, list.Items, classes.Items, driver); err != nil {
		m.blind = true
		m.unknown("of which driver claims are", err)
	}
}

// targets of hooks, found by the operator's own resolver.
func (m *planner) targets(ctx context.Context, planned []v1.PlannedHook) []run.HookTargets {
	out := make([]run.HookTargets, len(planned))
	if len(planned) == 0 {
		return out
	}
	selections := make([]hooks.Selection, len(planned))
	for i := range planned {
		h := &planned[i]
		selections[i] = hooks.Selection{Namespace: h.Namespace, Selector: &h.PodSelector, Container: h.Container, Policy: hooks.Policy(h.TargetPolicy)}
	}
	resolved, err := hooks.NewResolver(m.k.clientset.CoreV1()).ResolveAll(ctx, selections)
	if err != nil {
		m.blind = true
		m.unknown("in which pods hooks would run", err)
		return out
	}
	for i := range resolved {
		for _, t := range resolved[i].Targets {
			out[i].Targets = append(out[i].Targets, run.Target(t))
		}
		for _, x := range resolved[i].Problems {
			out[i].Problems = append(out[i].Problems, run.Problem{Reason: string(x.Reason), Message: x.Message})
		}
	}
	return out
}

// rights of the account that would run the hooks. What cannot be asked is no problem of the schedule's.
func (m *planner) rights(ctx context.Context, planned []v1.PlannedHook, targets []run.HookTargets) {
	if len(planned) == 0 {
		return
	}
	account := hooks.Account{Namespace: m.s.Namespace, Name: m.operator.rules.Account(m.s.Spec.ServiceAccountName)}
	m.Account = &PlanAccount{Name: fmt.Sprintf("ServiceAccount %s/%s", account.Namespace, account.Name)}
	switch {
	case account.Name != "":
	case m.operator.account == (hooks.Account{}):
		m.Account.Name = "the operator's own"
		m.unknown("as whom the hooks would run, and whether that account may", m.noOperator)
		return
	default:
		account = m.operator.account
		m.Account.Name = fmt.Sprintf("the operator's own, ServiceAccount %s/%s", account.Namespace, account.Name)
	}
	asked := map[string]PlannedRight{}
	for i := range planned {
		ns := planned[i].Namespace
		right, ok := asked[ns]
		if !ok {
			right = m.right(ctx, ns, account)
			asked[ns] = right
		}
		if !right.Allowed {
			targets[i].Problems = append(targets[i].Problems, run.Problem{Reason: v1.ReasonForbidden, Message: right.Reason})
		}
	}
}

// right of an account to run hooks in a namespace; where it cannot be asked for, nothing is known against it.
func (m *planner) right(ctx context.Context, namespace string, account hooks.Account) PlannedRight {
	allowed, reason, err := hooks.NewRights(m.k.clientset.AuthorizationV1()).Check(ctx, namespace, account)
	if err != nil {
		m.unknown("whether "+m.Account.Name+" may run hooks in namespace "+namespace, err)
		return PlannedRight{Namespace: namespace, Allowed: true}
	}
	right := PlannedRight{Namespace: namespace, Allowed: allowed, Reason: reason}
	m.Account.Rights = append(m.Account.Rights, right)
	return right
}

// decide what a run of the next slot would do, by the operator's own state machine: it is asked about a run by hand that is created at that time, for no
// run of a slot exists before its time.
func (m *planner) decide(survey *run.Survey) {
	created := metav1.NewTime(m.now)
	if len(m.Slots) > 0 {
		created = metav1.NewTime(m.Slots[0].Slot)
	}
	o := &v1.SnapshotRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.s.Namespace, Name: "plan", UID: "plan", CreationTimestamp: created, Finalizers: []string{v1.FinalizerRelease}},
		Spec:       v1.SnapshotRunSpec{ScheduleName: m.s.Name},
	}
	d := run.Decide(run.Input{Now: m.now, Process: "plan", Config: run.Config{ReleaseDeadline: m.operator.releaseDeadline, ReadyTimeout: m.operator.readyTimeout, Hooks: m.operator.rules}, Run: o, Schedule: m.s,
		World: run.World{Lock: run.Lock{Held: true}, Survey: survey}})
	m.LeftOut = survey.LeftOut
	m.Outcome = outcomePlanned
	for _, e := range d.Act {
		if c, ok := e.(run.CreateSnapshot); ok {
			m.Claims = append(m.Claims, PlannedClaim{Claim: c.Claim, Snapshot: c.Name, Class: c.ClassName, Driver: m.drivers[c.Claim]})
		}
	}
	slices.SortFunc(m.Claims, func(a, b PlannedClaim) int { return strings.Compare(a.Claim, b.Claim) })
	st := d.Persist
	if st == nil {
		return
	}
	for i := range st.Snapshots {
		c := &st.Snapshots[i]
		p := PlannedClaim{Claim: c.Claim, Snapshot: c.Name, Class: c.ClassName, Driver: m.drivers[c.Claim]}
		if g := st.GroupSnapshot; g != nil {
			p.Snapshot, p.Class = "a member of group "+g.Name, g.ClassName
		}
		m.Claims = append(m.Claims, p)
	}
	switch {
	case st.Result == v1.ResultSkipped:
		m.Outcome, m.Message = outcomeSkipped, st.Message
	case st.Result == v1.ResultFailed:
		m.Outcome, m.Message = outcomeFailed, st.Message
	case st.Phase == v1.PhasePostHooks:
		m.Outcome = outcomeFailed
		m.Message = ptr.Deref(meta.FindStatusCondition(st.Conditions, v1.ConditionPreHooksSucceeded), metav1.Condition{}).Message
	}
}

// retention of the snapshots that exist.
func (m *planner) retention(ctx context.Context, zone *time.Location) {
	found, err := m.k.snapshots(ctx, m.s.Name)
	if err != nil {
		m.unknown("what retention would delete", err)
		return
	}
	runs, err := m.k.runs(ctx, m.s.Name)
	if err != nil {
		m.unknown("what retention would delete", err)
		return
	}
	list, err := m.k.claims(ctx)
	if err != nil {
		m.unknown("what retention would delete", err)
		return
	}
	rules, err := snapshots.Rules(&m.s.Spec.Retention, zone, m.operator.readyTimeout)
	if err != nil {
		m.Retention.Rules = "not valid, nothing is deleted: " + err.Error()
		return
	}
	m.Retention.Rules = rulesInWords(&m.s.Spec.Retention)
	var existing []retention.Claim
	for i := range list {
		existing = append(existing, retention.Claim{Name: list[i].Name, UID: string(list[i].UID), Created: list[i].CreationTimestamp.Time})
	}
	verdicts := retention.Decide(m.now, rules, existing, snapshots.ForRetention(m.s.Name, found, runs))
	for _, v := range verdicts {
		d := PlannedDeletion{Snapshot: v.Snapshot.Name, Claim: v.Snapshot.ClaimName, Rule: string(v.Rule), Reason: v.Reason}
		if v.Delete {
			m.Retention.Delete = append(m.Retention.Delete, d)
		} else {
			m.Retention.Keep = append(m.Retention.Keep, d)
		}
	}
	if next := retention.NextDue(verdicts); !next.IsZero() {
		m.Retention.Next = &next
	}
}

func rulesInWords(r *v1.SnapshotRetentionSpec) string {
	var parts []string
	add := func(name string, n *int32) {
		if n != nil {
			parts = append(parts, fmt.Sprintf("%s %d", name, *n))
		}
	}
	if r.Expires != "" {
		parts = append(parts, "expires "+r.Expires)
	}
	add("maxCount", r.MaxCount)
	add("keepLast", r.KeepLast)
	add("keepHourly", r.KeepHourly)
	add("keepDaily", r.KeepDaily)
	add("keepWeekly", r.KeepWeekly)
	add("keepMonthly", r.KeepMonthly)
	add("keepYearly", r.KeepYearly)
	if r.ExpireLast {
		parts = append(parts, "expireLast")
	}
	if len(parts) == 0 {
		return "none: nothing is deleted"
	}
	return strings.Join(parts, ", ")
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/process"
)

var begin = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)

func at(d time.Duration) *metav1.MicroTime { return &metav1.MicroTime{Time: begin.Add(d)} }

func hook(stage v1.HookStage, name, output string, from, to time.Duration) v1.HookStatus {
	return v1.HookStatus{
		Stage: stage, Name: name, Conditions: []metav1.Condition{{Type: v1.ConditionSucceeded, Status: metav1.ConditionTrue, Reason: v1.ReasonHookCompleted}},
		Targets: []v1.TargetStatus{{Pod: "postgres-0", Container: "c", ExitCode: new(int32), StartTime: at(from), EndTime: at(to), Output: output}},
	}
}

func goodRun() *v1.SnapshotRun {
	r := &v1.SnapshotRun{}
	r.Name = "every-minute-202601020304"
	r.Status = v1.SnapshotRunStatus{
		Phase: v1.PhaseCompleted, Result: v1.ResultSucceeded, QuiescedTime: at(0), ReleasedTime: at(29 * time.Second),
		Consistency: &v1.ConsistencyStatus{Verdict: v1.ConsistencyApplication},
		Hooks: []v1.HookStatus{
			hook(v1.StagePre, "flush", "12345678\n", 0, 9*time.Second),
			hook(v1.StagePre, "freeze", "", 9*time.Second, 18*time.Second),
			hook(v1.StagePost, "thaw", "", 20*time.Second, 29*time.Second),
		},
		Snapshots: []v1.SnapshotStatus{{Claim: claimName, Name: claimName + "-every-minute-202601020304"}},
	}
	return r
}

func TestTheLastScreenFitsAScreen(t *testing.T) {
	s := &seen{run: goodRun(), committed: 12345678, restored: 12345679, written: 12345680, pause: 12345 * time.Millisecond, longest: 123456 * time.Millisecond,
		recovery: "redo done at FFF/FFFFFFF8; database system is ready", operatorLog: "/var/lib/stillpoint-cluster/log/stillpoint.log"}
	lines := strings.Split(strings.TrimSuffix(s.screen(1234*time.Second), "\n"), "\n")
	if len(lines) > 24 {
		t.Errorf("it has %d lines, at most 24 fit", len(lines))
	}
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > 100 {
			t.Errorf("%d columns, at most 100 fit: %s", n, line)
		}
	}
	if t.Failed() {
		t.Log("\n" + strings.Join(lines, "\n"))
	}
}

func TestAStoryTellsEachPhaseAndHookOnce(t *testing.T) {
	var told []string
	s := story{say: func(format string, args ...any) { told = append(told, strings.Fields(fmt.Sprintf(format, args...))[0]) }}
	r := goodRun()
	all := r.Status.Hooks
	for _, step := range []struct {
		phase v1.RunPhase
		hooks int
	}{{"", 0}, {v1.PhasePending, 0}, {v1.PhasePreHooks, 0}, {v1.PhasePreHooks, 1}, {v1.PhasePreHooks, 1}, {v1.PhaseSnapshotting, 2}, {v1.PhasePostHooks, 2}, {v1.PhaseCompleted, 3}} {
		r.Status.Phase, r.Status.Hooks = step.phase, all[:step.hooks]
		s.tell(r)
	}
	if got, want := strings.Join(told, " "), "Pending PreHooks flush freeze Snapshotting PostHooks thaw Completed"; got != want {
		t.Errorf("told %s\nwant %s", got, want)
	}
}

func TestOnlyAnApplicationConsistentRunIsAsItShouldBe(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*v1.SnapshotRun)
		want  string
	}{
		"a good run":           {func(*v1.SnapshotRun) {}, ""},
		"a failed run":         {func(r *v1.SnapshotRun) { r.Status.Result, r.Status.Message = v1.ResultFailed, "flush failed" }, "Failed: flush failed"},
		"crash-consistent":     {func(r *v1.SnapshotRun) { r.Status.Consistency.Verdict = v1.ConsistencyCrash }, "not application-consistent"},
		"no verdict":           {func(r *v1.SnapshotRun) { r.Status.Consistency = nil }, "not application-consistent"},
		"another claim's":      {func(r *v1.SnapshotRun) { r.Status.Snapshots[0].Claim = "other" }, "should have one, of claim " + claimName},
		"released, but when??": {func(r *v1.SnapshotRun) { r.Status.ReleasedTime = nil }, "lacks the times"},
	} {
		r := goodRun()
		c.spoil(r)
		err := asItShould(r)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestRowsAreJudged(t *testing.T) {
	for _, c := range []struct {
		committed, restored, written int64
		want                         string
	}{{10, 10, 10, ""}, {10, 11, 12, ""}, {10, 9, 12, "1 committed rows are lost"}, {10, 13, 12, "cut after the release"}} {
		err := (&seen{committed: c.committed, restored: c.restored, written: c.written}).judge()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if n, err := rowsAtFlush(goodRun()); n != 12345678 || err != nil {
		t.Errorf("rows at flush: %d, %v", n, err)
	}
}

func TestTheWritersLogTellsItsPauses(t *testing.T) {
	const log = `2026-01-02T03:03:59.000000Z rows=1 pause=900ms longest=900ms
2026-01-02T03:04:01.500000Z rows=2 pause=200ms longest=900ms
2026-01-02T03:04:02.100000Z rows=3 pause=1500ms longest=1500ms
half a line rows=
2026-01-02T03:05:00.000000Z rows=4 pause=1700ms longest=1700ms
`
	meanwhile, ever := pauses(log, begin, begin.Add(3*time.Second))
	if meanwhile != 1500*time.Millisecond || ever != 1700*time.Millisecond {
		t.Errorf("got %s and %s", meanwhile, ever)
	}
}

func TestRecoveryIsCleanOnlyIfTheLogSaysSo(t *testing.T) {
	const start = "2026-01-02 03:04:05.000 UTC [15] LOG:  redo starts at 0/17B6330\n"
	const done = "2026-01-02 03:04:05.000 UTC [15] LOG:  redo done at 0/17CB308 system usage: CPU: user: 0.00 s\n"
	const ready = "2026-01-02 03:04:05.000 UTC [1] LOG:  database system is ready to accept connections\n"
	for name, c := range map[string]struct {
		log   string
		clean bool
	}{
		"clean":                {start + done + ready, true},
		"nothing to redo":      {"x LOG:  redo is not required\n" + ready, true},
		"a probe in between":   {start + "x FATAL:  the database system is not yet accepting connections\n" + done + ready, true},
		"an early probe":       {start + "x FATAL:  the database system is starting up\n" + done + ready, true},
		"not ready":            {start + done, false},
		"no recovery at all":   {ready, false},
		"a checksum is wrong":  {start + done + ready + "x WARNING:  page verification failed, calculated checksum 1 but expected 2\n", false},
		"a file is unreadable": {start + "x LOG:  could not open file \"pg_wal/1\"\n" + done + ready, false},
		"a panic":              {start + "x PANIC:  could not locate a valid checkpoint record\n", false},
	} {
		if words, err := cleanRecovery(c.log); (err == nil) != c.clean {
			t.Errorf("%s: %q, %v", name, words, err)
		}
	}
}

func TestTheOperatorsProcessIsRecorded(t *testing.T) {
	file := t.TempDir() + "/operator.json"
	if o, err := readOperator(file); err != nil || o.Alive() {
		t.Fatalf("without a record nothing runs: %+v, %v", o, err)
	}
	self, _ := process.Of(os.Getpid())
	o := operator{self, "127.0.0.1:1", "127.0.0.1:2"}
	if err := o.record(file); err != nil {
		t.Fatal(err)
	}
	if same, err := readOperator(file); err != nil || same != o || !same.Alive() {
		t.Errorf("read %+v, %v; wrote %+v", same, err, o)
	}
}

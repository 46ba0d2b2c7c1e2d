// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// restore starts a second PostgreSQL from the run's snapshot and judges what it holds.
func (d *demo) restore(ctx context.Context, run *v1.SnapshotRun) (*seen, error) {
	s := &seen{run: run, operatorLog: d.operatorLog()}
	var err error
	if s.committed, err = rowsAtFlush(run); err != nil {
		return nil, err
	}
	// a row's time is that of its INSERT: what is in the snapshot was inserted before the release
	released := run.Status.ReleasedTime.UTC().Format(time.RFC3339Nano)
	if s.written, err = d.count(ctx, "postgres-0", "SELECT count(*) FROM events WHERE at <= '"+released+"'"); err != nil {
		return nil, err
	}
	if s.pause, s.longest, err = d.writersPause(ctx, run); err != nil {
		return nil, err
	}
	snapshot := run.Status.Snapshots[0].Name
	d.say("the restore: a second PostgreSQL from snapshot %s (hack/demo/restored.yaml)", snapshot)
	if err := d.apply(ctx, "restored.yaml", "SNAPSHOT", snapshot); err != nil {
		return nil, err
	}
	if err := d.rolledOut(ctx, "statefulset/restored"); err != nil {
		return nil, err
	}
	if s.restored, err = d.count(ctx, "restored-0", "SELECT count(*) FROM events"); err != nil {
		return nil, err
	}
	d.say("the restore: %d rows; %d were committed before the freeze, %d written until the release", s.restored, s.committed, s.written)
	if err := s.judge(); err != nil {
		return nil, err
	}
	log, err := d.kubectl(ctx, "", "-n", namespace, "logs", "restored-0", "-c", "postgres")
	if err != nil {
		return nil, err
	}
	if s.recovery, err = cleanRecovery(log); err != nil {
		return nil, err
	}
	d.say("the restore: PostgreSQL's log: %s", s.recovery)
	return s, nil
}

var number = regexp.MustCompile(`(?m)^\s*(\d+)\s*$`)

// rowsAtFlush is what the flush hook's SELECT printed, as the run's status keeps it: every row that it saw was committed
// before the freeze.
func rowsAtFlush(run *v1.SnapshotRun) (int64, error) {
	for _, h := range run.Status.Hooks {
		for _, t := range h.Targets {
			if m := number.FindStringSubmatch(t.Output); h.Name == "flush" && m != nil {
				return strconv.ParseInt(m[1], 10, 64)
			}
		}
	}
	return 0, errors.New("the run's status does not hold the number of rows that the flush hook printed")
}

var pauseLine = regexp.MustCompile(`(?m)^(\S+Z) rows=\d+ pause=(\d+)ms longest=(\d+)ms$`)

// writersPause reads the writer's log: its longest pause that ended while or just after the run had PostgreSQL
// quiesced (0: none that it thought worth a line), and its longest ever.
func (d *demo) writersPause(ctx context.Context, run *v1.SnapshotRun) (meanwhile, ever time.Duration, err error) {
	log, err := d.kubectl(ctx, "", "-n", namespace, "logs", "deploy/writer", "--tail=500")
	if err != nil {
		return 0, 0, err
	}
	meanwhile, ever = pauses(log, run.Status.QuiescedTime.Time, run.Status.ReleasedTime.Add(time.Second))
	return meanwhile, ever, nil
}

func pauses(log string, from, to time.Time) (meanwhile, ever time.Duration) {
	for _, m := range pauseLine.FindAllStringSubmatch(log, -1) {
		at, err := time.Parse(time.RFC3339Nano, m[1])
		pause, err1 := time.ParseDuration(m[2] + "ms")
		longest, err2 := time.ParseDuration(m[3] + "ms")
		if errors.Join(err, err1, err2) != nil {
			continue
		}
		ever = max(ever, longest)
		if !at.Before(from) && !at.After(to) {
			meanwhile = max(meanwhile, pause)
		}
	}
	return meanwhile, ever
}

// judge fails if the snapshot lost a row that was committed before the freeze, or holds one from after the release.
func (s *seen) judge() error {
	if s.restored < s.committed {
		return fmt.Errorf("the restored server has %d rows, but %d were committed before the freeze: %d committed rows are lost",
			s.restored, s.committed, s.committed-s.restored)
	}
	if s.restored > s.written {
		return fmt.Errorf("the restored server has %d rows, but only %d had been written when PostgreSQL was released: the snapshot was cut after the release",
			s.restored, s.written)
	}
	return nil
}

var (
	logLine = regexp.MustCompile(`(?m)(LOG|WARNING|ERROR|FATAL|PANIC):  (.*)$`)
	trouble = regexp.MustCompile(`(?i)invalid page|corrupt|could not|checksum|missing`)
	// early is what a client is told that comes before the recovery is done, such as the readiness probe
	early = regexp.MustCompile(`^the database system is (starting up|not yet accepting connections|not accepting connections|in recovery mode)`)
)

// cleanRecovery returns the sentence in which a restored PostgreSQL says that its recovery is done.
func cleanRecovery(log string) (string, error) {
	done, ready := "", false
	for _, m := range logLine.FindAllStringSubmatch(log, -1) {
		level, text := m[1], m[2]
		switch {
		case level == "FATAL" && early.MatchString(text):
		case level != "LOG" || trouble.MatchString(text):
			return "", fmt.Errorf("the restored PostgreSQL's recovery was not clean: its log says %q", level+": "+text)
		case strings.HasPrefix(text, "redo done"), strings.HasPrefix(text, "redo is not required"):
			done, _, _ = strings.Cut(text, " system usage")
		case strings.HasPrefix(text, "database system is ready"):
			ready = true
		}
	}
	if done == "" || !ready {
		return "", fmt.Errorf("the restored PostgreSQL's log does not say that its recovery was done: kubectl -n %s logs restored-0", namespace)
	}
	return done + "; database system is ready", nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
)

// latencies are how many requests of each kind the API server has answered, whoever asked, and how many seconds that took.
type latencies map[string]struct{ count, seconds float64 }

var latency = regexp.MustCompile(`^apiserver_request_duration_seconds_(sum|count)\{(.*)\} (\S+)$`)

// latencies so far.
func (w *world) latencies(ctx context.Context) (latencies, error) {
	cs, err := kubernetes.NewForConfig(w.env.Config)
	if err != nil {
		return nil, err
	}
	text, err := cs.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	out := latencies{}
	for line := range strings.Lines(string(text)) {
		m := latency.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		labels := map[string]string{}
		for pair := range strings.SplitSeq(m[2], ",") {
			k, v, _ := strings.Cut(pair, "=")
			labels[k] = strings.Trim(v, `"`)
		}
		kind := strings.ToLower(labels["verb"]) + " " + labels["resource"]
		if labels["subresource"] != "" {
			kind += "/" + labels["subresource"]
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil || labels["resource"] == "" || labels["verb"] == "WATCH" {
			continue
		}
		l := out[kind]
		if m[1] == "sum" {
			l.seconds += value
		} else {
			l.count += value
		}
		out[kind] = l
	}
	return out, nil
}

// since before: the requests of each kind, and what one took on average.
func (l latencies) since(before latencies) string {
	var lines []string
	for _, kind := range slices.Sorted(maps.Keys(l)) {
		n := l[kind].count - before[kind].count
		if n >= 10 {
			lines = append(lines, fmt.Sprintf("%s: %g requests, %g ms each", kind, n, round((l[kind].seconds-before[kind].seconds)/n*1000)))
		}
	}
	return strings.Join(lines, "\n")
}

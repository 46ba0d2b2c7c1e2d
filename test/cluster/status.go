// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"strings"
)

// ComponentStatus is one process of the cluster as it is now.
type ComponentStatus struct {
	Name   string
	PID    int // 0: it does not run
	Paused bool
	RSS    int64 // resident memory in bytes
}

// Status looks at every component.
func (c *Cluster) Status() ([]ComponentStatus, error) {
	var list []ComponentStatus
	for _, name := range ComponentNames() {
		s := ComponentStatus{Name: name}
		p, ok, err := c.processOf(name)
		if err != nil {
			return nil, err
		}
		if ok {
			s.PID = p.PID
			s.Paused, s.RSS = procStatus(p.PID)
		}
		list = append(list, s)
	}
	return list, nil
}

func procStatus(pid int) (paused bool, rss int64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false, 0
	}
	for _, line := range strings.Split(string(b), "\n") {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "State":
			paused = strings.HasPrefix(value, "T")
		case "VmRSS":
			var kib int64
			if _, err := fmt.Sscan(value, &kib); err == nil {
				rss = kib << 10
			}
		}
	}
	return paused, rss
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/stillpoint-operator/stillpoint/test/process"
)

// operator is the operator's process and where it answers.
type operator struct {
	process.Process
	Health  string // address of /healthz and /readyz
	Metrics string // address of /metrics
}

// readOperator returns the recorded process; without a record, one that does not run.
func readOperator(file string) (operator, error) {
	var o operator
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return o, fmt.Errorf("reading %s: %w", file, err)
	}
	return o, nil
}

func (o operator) record(file string) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".tmp", append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}

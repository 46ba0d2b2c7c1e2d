// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log"
	"os"
	"slices"
	"time"
)

// knobs make the driver misbehave. They are read from a file at every call, so a test can turn them at any time.
type knobs struct {
	CutDelay           duration // waited before the snapshot is taken
	ReplyDelay         duration // waited after it was taken, before the answer
	ReadyDelay         duration // for so long after it was taken a snapshot is not ready to use
	FailCreateSnapshot string   // if not empty: taking a snapshot fails with this message
	FailVolumes        []string // if not empty: only volumes of these claims ("namespace/name") fail
}

// duration is written as a string in JSON: "1.5s".
type duration time.Duration

func (d *duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if s == "" {
		*d = 0
		return nil
	}
	v, err := time.ParseDuration(s)
	*d = duration(v)
	return err
}

func (d duration) sleep() { time.Sleep(time.Duration(d)) }

// fails says whether a snapshot of this volume must fail.
func (k knobs) fails(v *volume) bool {
	if k.FailCreateSnapshot == "" {
		return false
	}
	return len(k.FailVolumes) == 0 || slices.Contains(k.FailVolumes, v.Claim)
}

func (d *driver) knobs() knobs {
	var k knobs
	b, err := os.ReadFile(d.knobFile)
	if errors.Is(err, fs.ErrNotExist) {
		return k
	}
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err != nil {
		log.Printf("the knobs are not usable and are ignored: %v", err)
		return knobs{}
	}
	return k
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"
)

// Knobs make the CSI driver slow, late or broken. The zero value is a good driver.
type Knobs struct {
	// CutDelay passes before a snapshot is taken.
	CutDelay time.Duration
	// ReplyDelay passes after it was taken, before the driver answers. The creation time in the answer is the cut's.
	ReplyDelay time.Duration
	// ReadyDelay is how long after it was taken a snapshot is not ready to use.
	ReadyDelay time.Duration
	// FailCreateSnapshot makes taking a snapshot fail with this message. Snapshots that were taken already stay.
	FailCreateSnapshot string
	// FailVolumes limits FailCreateSnapshot to the volumes of these claims ("namespace/name"). A group fails with any
	// of its volumes.
	FailVolumes []string
}

// MarshalJSON writes durations as the driver reads them: "1.5s".
func (k Knobs) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		CutDelay, ReplyDelay, ReadyDelay, FailCreateSnapshot string
		FailVolumes                                          []string `json:",omitempty"`
	}{k.CutDelay.String(), k.ReplyDelay.String(), k.ReadyDelay.String(), k.FailCreateSnapshot, k.FailVolumes})
}

func (c *Cluster) knobsFile() string { return c.path("csi", "knobs.json") }

// SetKnobs takes effect with the driver's next call. A call that has begun goes on with the knobs that it began with.
func (c *Cluster) SetKnobs(k Knobs) error { return writeJSON(c.knobsFile(), k) }

// ResetKnobs makes the driver good again.
func (c *Cluster) ResetKnobs() error {
	if err := os.Remove(c.knobsFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

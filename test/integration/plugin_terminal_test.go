// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	pluginof "github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/command"
)

// terminal is a real one, and what was written to it.
type terminal struct {
	mu   sync.Mutex
	text strings.Builder
	code chan int
}

func (x *terminal) shows() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.text.String()
}

// onTerminal begins a command line whose output is a terminal.
func (p *plugin) onTerminal(args ...string) *terminal {
	p.t.Helper()
	control, tty, err := pty.Open()
	p.Expect(err).NotTo(HaveOccurred())
	p.t.Cleanup(func() { _ = control.Close(); _ = tty.Close() })
	x := &terminal{code: make(chan int, 1)}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := control.Read(b)
			x.mu.Lock()
			x.text.Write(b[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	go func() {
		x.code <- pluginof.Execute(p.t.Context(), pluginof.Options{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: tty, ErrOut: io.Discard},
			Clock: operatorTime{o: p.operator}, Zone: time.UTC}, append([]string{"--kubeconfig", p.kubeconfig}, args...))
	}()
	return x
}

func TestPluginOnATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "") // put back at the end
	NewWithT(t).Expect(os.Unsetenv("NO_COLOR")).To(Succeed())
	o := prepare(t)
	p := o.plugin()
	o.schedule("s", quiescing)
	x := p.onTerminal("run", "s", "--wait")
	made := p.created("s")
	now := func() *metav1.MicroTime { return ptr.To(metav1.NewMicroTime(o.clock.Now())) }
	p.status(made, func(st *v1.SnapshotRunStatus) {
		st.Phase, st.QuiescedTime = v1.PhaseSnapshotting, now()
		st.Snapshots = []v1.SnapshotStatus{{Claim: "a", Name: "a-s", State: v1.SnapshotPending}}
	})
	o.will(x.shows).Should(ContainSubstring("\r\x1b[KSnapshotting 0 of 1 cut, quiesced for 0s"), "a line about what is waited for")
	o.clock.SetTime(o.clock.Now().Add(7 * time.Second))
	o.will(x.shows).Should(ContainSubstring("\r\x1b[KSnapshotting 0 of 1 cut, quiesced for 7s"), "which goes on by itself")
	p.status(made, func(st *v1.SnapshotRunStatus) {
		st.Phase, st.Result, st.Message, st.ReleasedTime = v1.PhaseCompleted, v1.ResultFailed, "hook freeze failed", now()
	})
	var code int
	o.will(x.code).Should(Receive(&code))
	p.Expect(code).To(Equal(2))
	o.will(x.shows).Should(HaveSuffix("Completed     Failed: hook freeze failed\x1b[0m\r\n"), "and which is gone at the end")
	last := x.shows()[strings.LastIndex(x.shows(), "\x1b[K"):]
	p.Expect(last).To(HavePrefix("\x1b[K"))
	p.Expect(last).To(ContainSubstring("\x1b[31m"), "failures are red")

	o.schedule("t", `{schedule: "0 * * * *", timeZone: Europe/Nowhere}`)
	p.patchStatus("t", `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"InvalidTimeZone","message":"no such zone","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
	x = p.onTerminal("list")
	o.will(x.code).Should(Receive(Equal(0)))
	o.will(x.shows).Should(ContainSubstring("\x1b[31mInvalid\x1b[0m"))
	rows := strings.Split(strings.TrimSpace(strings.ReplaceAll(x.shows(), "\r", "")), "\n")
	column := strings.Index(rows[0], "SCHEDULE")
	for _, r := range rows[1:] {
		p.Expect(r[column:]).To(HavePrefix("0 * * * *"), "colours leave the columns straight:\n%s", x.shows())
	}

	t.Setenv("NO_COLOR", "1")
	x = p.onTerminal("list")
	o.will(x.code).Should(Receive(Equal(0)))
	o.will(x.shows).Should(ContainSubstring("Invalid"))
	p.Expect(x.shows()).NotTo(ContainSubstring("\x1b"))
}

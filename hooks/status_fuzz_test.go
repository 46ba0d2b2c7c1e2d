// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// checkLine: a message is one bounded, printable line that repeats no argument.
func checkLine(t *testing.T, r Result, argv []string) {
	t.Helper()
	if len(r.Message) > maxMessage || !utf8.ValidString(r.Message) || strings.ContainsFunc(r.Message, unicode.IsControl) {
		t.Fatalf("the message is no bounded line: %q", r.Message)
	}
	said := strings.TrimPrefix(r.Message, meanings[r.Reason])
	// An answer is told by its code too, whatever the command was.
	said = strings.ReplaceAll(said, "HTTP status ", "")
	for _, fixed := range []string{"the server sent an unknown status", "the server sent no exit code", "the server upgraded to something that was not asked for"} {
		said = strings.ReplaceAll(said, fixed, "")
	}
	for _, arg := range argv {
		if len(arg) >= 4 && strings.Contains(said, arg) && r.Reason != NonZeroExit {
			t.Fatalf("the message %q repeats the argument %q", r.Message, arg)
		}
	}
	if (r.ExitCode != nil) != (r.Reason == Completed || r.Reason == NonZeroExit) {
		t.Fatalf("%s with exit code %v", r.Reason, r.ExitCode)
	}
}

// FuzzStatus judges whatever arrives on the error channel. Only a status of success is success.
func FuzzStatus(f *testing.F) {
	f.Add([]byte(`{"status":"Success"}`), "sh\n-c\nsecret")
	f.Add([]byte(`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"137"}]}}`), "true")
	f.Add([]byte(`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"-1"}]}}`), "")
	f.Add([]byte(`{"status":"Failure","message":"exec: \"mysql -psecret\": executable file not found in $PATH"}`), "mysql -psecret")
	f.Add([]byte(`{"status":"Failure","message":"GET https://10.0.0.1/exec?command=p%40ss failed\n\u001b[31m"}`), "p@ss")
	f.Add([]byte("{\"status\":\"Failure\",\"message\":\"\xff\xfe container not running\"}"), "x")
	f.Add([]byte(`{"status":"Suc`), "x")
	f.Fuzz(func(t *testing.T, raw []byte, command string) {
		argv := strings.Split(command, "\n")
		r := fromStatus(raw, argv)
		checkLine(t, r, argv)
		switch r.Reason {
		case Completed:
			if *r.ExitCode != 0 || !strings.Contains(strings.ToLower(string(raw)), "status") {
				t.Fatalf("%q is success", raw)
			}
		case NonZeroExit:
			if *r.ExitCode <= 0 {
				t.Fatalf("%q is exit code %d", raw, *r.ExitCode)
			}
		default:
			// What neither ended nor never started is told apart by the reason alone: one of the two, or the container has gone.
			if r.Reason.EndUnknown() == r.Reason.NeverStarted() && r.Reason != PodGone {
				t.Fatalf("%q is %s: unknown %v, never started %v", raw, r.Reason, r.Reason.EndUnknown(), r.Reason.NeverStarted())
			}
		}
	})
}

// FuzzAnswer judges any HTTP answer that refuses an upgrade. Another protocol is only tried if nothing can have started.
func FuzzAnswer(f *testing.F) {
	f.Add(403, []byte(`{"kind":"Status","message":"pods \"db-0\" is forbidden: User cannot create resource"}`), true, "x")
	f.Add(404, []byte(`{"kind":"Status","message":"pods \"db-0\" not found"}`), false, "x")
	f.Add(500, []byte("error dialing backend: dial tcp 10.0.0.1:10250: connect: connection refused"), false, "dial")
	f.Add(502, []byte("<html>Bad Gateway</html>"), false, "x")
	f.Add(400, []byte("container not found (\"c\")"), true, "container")
	f.Add(101, []byte(nil), true, "")
	f.Fuzz(func(t *testing.T, code int, body []byte, beforeStart bool, command string) {
		a, argv := answer{code: code, body: body}, strings.Split(command, "\n")
		r := a.result(beforeStart, argv)
		checkLine(t, r, argv)
		if r.Reason == Completed || r.Reason == NonZeroExit {
			t.Fatalf("the answer %d %q is %s", code, body, r.Reason)
		}
		if a.refusesUpgrade() && !r.Reason.NeverStarted() && code < 500 && code != 501 {
			t.Fatalf("the answer %d %q refuses the protocol, and is %s", code, body, r.Reason)
		}
	})
}

// FuzzCapture: however the output comes in pieces, its tail is the same, and nothing in it moves a cursor or a log.
func FuzzCapture(f *testing.F) {
	f.Add([]byte("READY\x1b[2J\r\nbye\x00"), uint8(3), "READY", "bye")
	f.Add([]byte(strings.Repeat("€\r\n", 3000)), uint8(5), "€€", "\r\n")
	f.Add([]byte("\xe2\x82"), uint8(1), "", "x")
	f.Fuzz(func(t *testing.T, p []byte, size uint8, expect, release string) {
		whole, pieces := newCapture(expect, release, nil), newCapture(expect, release, nil)
		_, _ = whole.Write(p)
		step := max(1, int(size))
		for at := 0; at < len(p); at += step {
			_, _ = pieces.Write(p[at:min(at+step, len(p))])
		}
		got := pieces.output()
		if want := whole.output(); got != want {
			t.Fatalf("in pieces of %d: %q, whole %q", step, got, want)
		}
		if len(got) > MaxOutput || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
			t.Fatalf("got %q", got)
		}
		ready, released := pieces.expected()
		wantReady, wantReleased := whole.expected()
		_, behind, found := strings.Cut(string(p), expect)
		if ready != wantReady || released != wantReleased || ready != found || released != (found && strings.Contains(behind, release)) {
			t.Fatalf("%q and then %q in %q: got %v, %v", expect, release, p, ready, released)
		}
	})
}

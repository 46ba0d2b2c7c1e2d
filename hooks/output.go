// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// MaxOutput is the most that is kept of a command's output, in bytes.
const MaxOutput = 4096

// capture takes everything a command writes and keeps a bounded tail of it, watching stdout for the texts that are expected. It never
// blocks and never fails, so that the stream is always drained. It is safe for concurrent use, and writes after the call has
// ended are harmless.
type capture struct {
	mu      sync.Mutex
	tail    tail
	expect  matcher
	release matcher
	// onExpected is called once, without the lock, when the expected text has appeared.
	onExpected func()
}

// newCapture watches for expect, and behind it for release. An empty text is met from the beginning.
func newCapture(expect, release string, onExpected func()) *capture {
	return &capture{expect: newMatcher(expect), release: newMatcher(release), onExpected: onExpected}
}

// Write implements io.Writer for stdout.
func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.tail.add(p)
	before := c.expect.found
	rest := c.expect.feed(p)
	if c.expect.found {
		c.release.feed(rest)
	}
	met := !before && c.expect.found && c.onExpected != nil
	c.mu.Unlock()
	if met {
		c.onExpected()
	}
	return len(p), nil
}

// stderr is the writer for the other stream, where nothing is expected.
func (c *capture) stderr() writerFunc {
	return func(p []byte) (int, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tail.add(p)
		return len(p), nil
	}
}

// expected says whether the expected text, and the release text behind it, have appeared.
func (c *capture) expected() (ready, released bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expect.found, c.expect.found && c.release.found
}

// output is the tail as Outcome.Output describes it.
func (c *capture) output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tail.text()
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// tail keeps the last MaxOutput bytes, in at most twice as much memory.
type tail struct {
	buf []byte
	cut bool
}

func (t *tail) add(p []byte) {
	if len(p) > MaxOutput {
		p, t.buf, t.cut = p[len(p)-MaxOutput:], t.buf[:0], true
	}
	if len(t.buf)+len(p) > 2*MaxOutput {
		// Only now and then, not with every byte: the cost of moving stays constant per byte written.
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-MaxOutput:]...)
		t.cut = true
	}
	t.buf = append(t.buf, p...)
}

func (t *tail) text() string {
	const omitted = "…"
	raw, cut := t.buf, t.cut
	if len(raw) > MaxOutput {
		raw, cut = raw[len(raw)-MaxOutput:], true
	}
	if cut {
		// The cut may have gone through a character: its remaining bytes say nothing.
		for i := 0; i < utf8.UTFMax-1 && len(raw) > 0 && !utf8.RuneStart(raw[0]); i++ {
			raw = raw[1:]
		}
	}
	clean := printable(strings.ReplaceAll(string(raw), "\r\n", "\n"), true)
	// A replaced byte takes three.
	if limit := MaxOutput - len(omitted); len(clean) > MaxOutput || (cut && len(clean) > limit) {
		cut = true
		start := len(clean) - limit
		for !utf8.RuneStart(clean[start]) {
			start++
		}
		clean = clean[start:]
	}
	if cut {
		return omitted + clean
	}
	return clean
}

// printable replaces what a terminal or a log viewer could act on, and what is not UTF-8. lines: newlines and tabs stay.
func printable(s string, lines bool) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsGraphic(r):
			return r
		case lines && (r == '\n' || r == '\t'):
			return r
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		default:
			return utf8.RuneError
		}
	}, s)
}

// matcher finds a text in a stream that comes in pieces, in memory of the text's own size (Knuth, Morris and Pratt).
type matcher struct {
	text  string
	fail  []int
	state int
	found bool
}

func newMatcher(text string) matcher {
	fail := make([]int, len(text))
	for i, k := 1, 0; i < len(text); i++ {
		for k > 0 && text[i] != text[k] {
			k = fail[k-1]
		}
		if text[i] == text[k] {
			k++
		}
		fail[i] = k
	}
	return matcher{text: text, fail: fail, found: text == ""}
}

// feed takes the next piece and returns what of it lies behind the text; nil as long as the text has not been found.
func (m *matcher) feed(p []byte) []byte {
	if m.found {
		return p
	}
	for i, b := range p {
		for m.state > 0 && b != m.text[m.state] {
			m.state = m.fail[m.state-1]
		}
		if b == m.text[m.state] {
			m.state++
		}
		if m.state == len(m.text) {
			m.found = true
			return p[i+1:]
		}
	}
	return nil
}

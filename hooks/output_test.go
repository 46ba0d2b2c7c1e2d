// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestExpectedTextIsFoundHoweverTheStreamIsCut(t *testing.T) {
	for name, tc := range map[string]struct {
		text, stream string
		found        bool
		rest         string
	}{
		"in the middle":                    {"READY", "not yet READY then", true, " then"},
		"at the end":                       {"READY", "READY", true, ""},
		"repeating itself":                 {"aab", "aaaab!", true, "!"},
		"a false start inside":             {"ababc", "abababc", true, ""},
		"never":                            {"READY", "READ READ REA", false, ""},
		"nothing expected is met at once":  {"", "x", true, "x"},
		"characters of more than one byte": {"gelöst", "ist gelöst.", true, "."},
	} {
		t.Run(name, func(t *testing.T) {
			for size := 1; size <= len(tc.stream); size++ {
				m, rest := newMatcher(tc.text), ""
				for at := 0; at < len(tc.stream); at += size {
					rest += string(m.feed([]byte(tc.stream[at:min(at+size, len(tc.stream))])))
				}
				if m.found != tc.found || rest != tc.rest {
					t.Fatalf("in pieces of %d: got %v, rest %q", size, m.found, rest)
				}
			}
		})
	}
}

func TestReleaseTextCountsOnlyAfterReadiness(t *testing.T) {
	c := newCapture("READY", "DONE", nil)
	_, _ = c.Write([]byte("DONE READY"))
	if ready, released := c.expected(); !ready || released {
		t.Fatalf("got ready %v, released %v", ready, released)
	}
	_, _ = c.Write([]byte(" DO"))
	_, _ = c.Write([]byte("NE"))
	if _, released := c.expected(); !released {
		t.Fatal("the release text was not found")
	}
}

func TestExpectedTextIsNotLookedForOnStderr(t *testing.T) {
	c := newCapture("READY", "", func() { t.Error("called") })
	_, _ = c.stderr().Write([]byte("READY"))
	if ready, _ := c.expected(); ready {
		t.Fatal("found on stderr")
	}
}

func TestOutputIsABoundedReadableTail(t *testing.T) {
	for name, tc := range map[string]struct {
		writes []string
		want   func(got string) bool
	}{
		"short output is kept whole": {
			[]string{"a\n", "b\tc"}, func(got string) bool { return got == "a\nb\tc" },
		},
		"bytes that are not UTF-8 are replaced": {
			[]string{"a\xff\xfeb"}, func(got string) bool { return got == "a��b" },
		},
		"a character in two pieces is one": {
			[]string{"\xc3", "\xb6"}, func(got string) bool { return got == "ö" },
		},
		"control characters are replaced, line ends unified": {
			[]string{"\x1b[31mred\r\n\x00\u202e."}, func(got string) bool { return got == "�[31mred\n��." },
		},
		"a long output keeps its end": {
			[]string{strings.Repeat("x", 100_000), "end"},
			func(got string) bool {
				return strings.HasPrefix(got, "…x") && strings.HasSuffix(got, "xend") && len(got) == MaxOutput
			},
		},
		"many small pieces keep their end": {
			strings.Split(strings.Repeat("0123456789,", 2_000), ","),
			func(got string) bool {
				return strings.HasPrefix(got, "…") && strings.HasSuffix(got, "0123456789") && len(got) == MaxOutput
			},
		},
		"a cut character leaves no trace": {
			[]string{strings.Repeat("€", 3_000)},
			func(got string) bool { return strings.HasPrefix(got, "…€") && !strings.Contains(got, "�") },
		},
		"rubbish does not grow": {
			[]string{strings.Repeat("\xff", 10_000)}, func(got string) bool { return strings.HasPrefix(got, "…�") },
		},
		"nothing": {nil, func(got string) bool { return got == "" }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCapture("", "", nil)
			for i, w := range tc.writes {
				if i%2 == 0 {
					_, _ = c.Write([]byte(w))
				} else {
					_, _ = c.stderr().Write([]byte(w))
				}
			}
			got := c.output()
			if !tc.want(got) || len(got) > MaxOutput || !utf8.ValidString(got) {
				t.Fatalf("got %d bytes: %.60q", len(got), got)
			}
			if cap(c.tail.buf) > 4*MaxOutput {
				t.Fatalf("%d bytes of memory", cap(c.tail.buf))
			}
		})
	}
}

func FuzzOutput(f *testing.F) {
	f.Add([]byte("READY\xff"), 3, 2)
	f.Fuzz(func(t *testing.T, p []byte, size, repeat int) {
		size, repeat = max(1, size%64), repeat%64
		text := string(p[:min(len(p), 5)])
		c := newCapture(text, "", nil)
		var all []byte
		for range max(1, repeat) {
			all = append(all, p...)
		}
		for at := 0; at < len(all); at += size {
			_, _ = c.Write(all[at:min(at+size, len(all))])
		}
		if got := c.output(); len(got) > MaxOutput || !utf8.ValidString(got) {
			t.Fatalf("got %q", got)
		}
		if ready, _ := c.expected(); ready != strings.Contains(string(all), text) {
			t.Fatalf("%q in %q: got %v", text, all, ready)
		}
	})
}

func TestMessagesAreOneBoundedLineWithoutArguments(t *testing.T) {
	argv := []string{"sh", "-c", "mysql -psecret\nquit", "p@ss word"}
	for text, want := range map[string]string{
		"plain":                                  "plain",
		"got sh -c":                              "got sh -c",
		`command "mysql -psecret\nquit" failed`:  "",
		"with p@ss word":                         "",
		"GET https://api/exec?command=p%40ss: x": "GET … x",
		"command=p%40ss+word":                    "",
	} {
		if got := withoutArguments(text, argv); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := line("a\nb\t\x1bc  d"); got != "a b \ufffdc d" {
		t.Errorf("got %q", got)
	}
	if got := line(strings.Repeat("ö", 1000)); len(got) > maxMessage || !utf8.ValidString(got) {
		t.Errorf("got %d bytes", len(got))
	}
}

// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// Page is one Markdown file.
type Page struct {
	Path    string // below the project's root
	Blocks  []Block
	Spans   []Span // code within the text
	Links   []Span
	Anchors []string
}

// Block is a block of code.
type Block struct {
	Lang string
	Text string
	Line int    // of its first line
	Mark string // the comment before it
}

// Span is a piece of text and where it stands.
type Span struct {
	Text string
	Line int
}

// Read the project's pages: README.md and the like, the chart's, and all below docs.
func Read(root string) ([]*Page, error) {
	paths, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		return nil, err
	}
	paths = append(paths, filepath.Join(root, "helm", "stillpoint", "README.md"))
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".md" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for pages: %w", err)
	}
	var pages []*Page
	for _, path := range paths {
		source, err := os.ReadFile(path) // #nosec G304 -- the project's own pages
		if err != nil {
			return nil, fmt.Errorf("reading a page: %w", err)
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		pages = append(pages, Parse(rel, source))
	}
	return pages, nil
}

// Parse one page.
func Parse(path string, source []byte) *Page {
	p := &Page{Path: path}
	line := func(at int) int { return 1 + strings.Count(string(source[:at]), "\n") }
	last := 1 // inline code and links have no place of their own: that of the block around them, or of the text before them
	root := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		if n.Type() == ast.TypeBlock && n.Lines() != nil && n.Lines().Len() > 0 {
			last = line(n.Lines().At(0).Start)
		}
		switch n := n.(type) {
		case *ast.Heading:
			p.addAnchor(inline(n, source))
		case *ast.FencedCodeBlock:
			p.Blocks = append(p.Blocks, Block{Lang: string(n.Language(source)), Text: string(n.Lines().Value(source)), Line: last, Mark: markBefore(n, source)})
		case *ast.CodeBlock:
			p.Blocks = append(p.Blocks, Block{Lang: "sh", Text: string(n.Lines().Value(source)), Line: last, Mark: markBefore(n, source)})
		case *ast.CodeSpan:
			p.Spans = append(p.Spans, Span{Text: inline(n, source), Line: last})
		case *ast.Link:
			p.Links = append(p.Links, Span{Text: string(n.Destination), Line: last})
		case *ast.Image:
			p.Links = append(p.Links, Span{Text: string(n.Destination), Line: last})
		case *ast.Text:
			last = line(n.Segment.Start)
		}
		return ast.WalkContinue, nil
	})
	return p
}

var comment = regexp.MustCompile(`(?s)^<!--\s*(.*?)\s*-->\s*$`)

func markBefore(n ast.Node, source []byte) string {
	html, ok := n.PreviousSibling().(*ast.HTMLBlock)
	if !ok {
		return ""
	}
	whole := html.Lines().Value(source)
	if html.HasClosure() {
		whole = append(whole, html.ClosureLine.Value(source)...)
	}
	found := comment.FindSubmatch(whole)
	if found == nil {
		return ""
	}
	return string(found[1])
}

// inline is the text below a node.
func inline(n ast.Node, source []byte) string {
	var out strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			out.Write(t.Segment.Value(source))
			if t.SoftLineBreak() {
				out.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return out.String()
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// addAnchor of a heading, as code hosts make them.
func (p *Page) addAnchor(heading string) {
	base := strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
	anchor := base
	for i := 1; slices.Contains(p.Anchors, anchor); i++ {
		anchor = fmt.Sprintf("%s-%d", base, i)
	}
	p.Anchors = append(p.Anchors, anchor)
}

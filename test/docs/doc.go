// SPDX-License-Identifier: Apache-2.0

// Package docs reads the project's pages and finds what in them is not true: links that lead nowhere, commands and flags that do not exist, names of
// fields, values, tests and files that nothing has, YAML that cannot be read. What needs an API server is in test/integration/docs_test.go: there, every object
// that a page shows is applied to one, with dry run, and every kubectl command line is given to kubectl.
//
// A page is Markdown. What a code block is depends on its language; an indented block is shell.
//
//	yaml      objects, each applied to an API server
//	sh        command lines
//	console   lines that begin with "$ " are command lines, the others what they print
//	text      none of these
//
// A comment before a block, which no renderer shows, says more:
//
//	<!-- fragment -->           YAML that is no object; it is parsed only
//	<!-- fragment: spec -->     YAML that is part of a schedule's spec; it is applied as part of one
//	<!-- fragment: values -->   YAML of values for the chart; each of them is one of the chart's
//	<!-- not run: WHY -->       commands that no test can know anything about
//
// Command lines are known by their first word: kubectl, kubectl stillpoint, helm, make, go and the operator itself are judged by what these accept; a few utilities
// of every machine are accepted; anything else must be marked.
package docs

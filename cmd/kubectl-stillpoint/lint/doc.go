// SPDX-License-Identifier: Apache-2.0

// Package lint judges SnapshotSchedules and SnapshotRuns in YAML files without a cluster: everything that the API server would refuse, by
// the same code and the same definitions, and then what it cannot see: what a schedule means, and whether its hooks release what they quiesce.
//
//	files ─▶ documents (lines kept) ─▶ schema (OpenAPI, CEL, unknown fields) ─▶ one object's meaning ─▶ all objects together ─▶ findings
//
// Objects of other kinds are passed over. A file that is not YAML is reported if it seems to be about this project's objects, or was named.
package lint

// SPDX-License-Identifier: Apache-2.0

// Package command is the kubectl plugin: its commands, what they read and what they write. What they decide is decided by the packages
// beside this one and by the operator's own (internal/...).
//
// Every command is a function of a kube (a connection, a namespace) and prints to the streams it was given. A command that ends otherwise than
// well returns a *failure with its exit code; Execute prints it once.
package command

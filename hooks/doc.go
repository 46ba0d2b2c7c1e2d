// SPDX-License-Identifier: Apache-2.0

// Package hooks runs commands inside containers: it finds the containers, asks whether an account may exec into them, and carries
// the calls in a bounded pool outside the reconcile workers. It knows neither of the project's kinds.
//
// # What a caller does
//
//	Resolver.ResolveAll    selections → targets and problems, one live list per distinct selector
//	Rights.Check           may this account exec in this namespace?
//	Pool.Reserve           asks for a slot (queued first come, first served)
//	   ... the caller persists its claim: the slot is its own for 30 seconds ...
//	Pool.Start             starts the call, at most once per key and process
//	Pool.Release           a held command: closes its stdin
//	Pool.Status, Pool.Wake how it stands, and who should look again
//	Pool.Forget            the run is over: cancels what is left and drops its memory
//
// # The states of a call
//
//	Unknown ─Reserve─▶ Queued ─slot─▶ Reserved ─Start─▶ Running ─────────end────────▶ Done
//	   ▲                  │             │   │              │ hold: said it is ready    ▲
//	   └──────────────────┼─ 30 s ──────┘   │              ▼                           │
//	                      └────Cancel───────┼────────▶   Held ─Release─▶ Releasing ────┤
//	                                        │              └── ended by itself ────────┤
//	                                        └──────────────Cancel──────────────────────┘
//
// A Held call occupies no slot, and its release needs none: a release never waits.
//
// # What an outcome promises
//
// Exec is not idempotent, so every outcome says how much is known. Reason.NeverStarted: no process ran, repeating is safe.
// Reason.EndUnknown: a process may have run and may still be running. Anything else: it ran, and it has ended. A stream that ends without a
// status from the server is ConnectionLost, never success; this package speaks both exec protocols itself because the executors of
// client-go report such a stream as success.
//
// Arguments of commands can hold secrets: they appear in no error and in no message of this package. The tail of a command's
// output does appear, in Outcome.Output.
package hooks

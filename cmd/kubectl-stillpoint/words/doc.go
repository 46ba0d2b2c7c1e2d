// SPDX-License-Identifier: Apache-2.0

// Package words puts schedules and runs into sentences. It is pure: the same objects at the same time give the same text.
package words

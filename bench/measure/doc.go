// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package measure measures what a library costs that watches many clusters. A
// program links it with a [Subject] and calls [Main]; it measures once, in its
// own process, and ends.
//
//	bench ── starts ──▶ fleet of servers ◀── watches ── program with a Subject
//	   │                      ▲                               │
//	   │                      └────────── controls ───────────┤
//	   └── Task on stdin ────────────────────────────────────▶│
//	   ◀── Figures on stdout ─────────────────────────────────┘
package measure

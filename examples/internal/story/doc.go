// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package story has what the example programs share that show the library at
// work in a terminal:
//
//   - Program: command line, logs, signals and the exit status;
//   - Printer: chapters, lines with the time since the start, tables, progress;
//   - Story: expectations, and waits with a bound;
//   - Child: the program as a second process.
//
// An example checks everything it shows. The first expectation that is not met
// ends the program with status 1, and the reason is printed.
package story

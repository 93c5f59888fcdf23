// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package markup writes HTML pages of which a part was written by others.
//
// No method writes text as it is. Elements and attributes are those that the
// package has, so that each value has a known context: [Page.Text] and the
// attributes escape, and an address is made from its parts. Elements whose
// content browsers run, and attributes that are scripts or styles, do not
// exist; a style sheet is a constant of the program. Elements end where their
// content does.
//
// It does what html/template does, for programs that cannot afford it: a
// program that can execute a template keeps every exported method of every type
// that it converts to an interface.
//
// # Tests
//
// The leading test is TestVariablesCannotBeWrittenUnescaped.
package markup

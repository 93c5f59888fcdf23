// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package markup

import "net/url"

// Address is where a link leads. Its scheme, host and path are constants of the
// program.
type Address struct{ text string }

// Query returns the address of the same page with other parameters.
func Query(values url.Values) Address { return Address{"?" + values.Encode()} }

// Section returns the address of a section of a page.
func Section(page constant, fragment string) Address {
	return Address{string(page) + "#" + url.PathEscape(fragment)}
}

// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"syscall"

	"go.etcd.io/bbolt"
)

// release takes the pages of the file out of the resident memory of the
// process, where reads have left them. They stay in the page cache, and come
// back when they are read. The mapping is shared and read-only, so that nothing
// is lost, and stays where it is during the transaction.
func release(tx *bbolt.Tx) {
	mapped := tx.DB().Info().Data
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, mapped, uintptr(tx.Size()), syscall.MADV_DONTNEED)
}

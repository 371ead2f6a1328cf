// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package replay

// Allowance is what all that one stream keeps may take. It is used under the lock of
// its Buffers and its Queue.
type Allowance struct {
	Memory  int64    // bytes
	Account *Account // from which the memory is taken too
	Disk    Disk

	memory, disk int64 // in use
}

// reserve takes n bytes of memory; false if there are not so many.
func (a *Allowance) reserve(n int64) bool {
	if n > a.Memory-a.memory || !a.Account.reserve(n) {
		return false
	}
	a.memory += n
	return true
}

// release gives n bytes of memory back.
func (a *Allowance) release(n int64) {
	a.memory -= n
	a.Account.used.Add(-n)
}

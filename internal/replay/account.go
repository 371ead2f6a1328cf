// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import "sync/atomic"

// Account bounds the memory that many buffers hold together. It is safe for
// concurrent use.
type Account struct {
	limit int64
	used  atomic.Int64
}

// NewAccount returns an account of limit bytes.
func NewAccount(limit int64) *Account {
	return &Account{limit: limit}
}

// Used returns the bytes that are held now.
func (a *Account) Used() int64 { return a.used.Load() }

// reserve takes n bytes; false if there are not so many.
func (a *Account) reserve(n int64) bool {
	for {
		used := a.used.Load()
		if n > a.limit-used {
			return false
		}
		if a.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Swap takes n bytes in place of others; false if there are not so many, and nothing has
// changed.
func (a *Account) Swap(others, n int64) bool { return a.reserve(n - others) }

// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestWindowRoom holds that a window may be full to its last byte, and that room which
// is made while nobody waits yet is not missed by who is about to.
func TestWindowRoom(t *testing.T) {
	t.Parallel()
	w := newWindow(0, 10)
	assert.True(t, w.tryTake(4))
	assert.True(t, w.tryTake(6))
	assert.False(t, w.tryTake(1))
	w.giveBack(6)
	select {
	case <-w.freed:
	default:
		t.Error("it is forgotten")
	}
	assert.True(t, w.tryTake(6))
}

// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
)

// The counts must not depend on where the writes split the bytes.
func TestFramesInPieces(t *testing.T) {
	var wire bytes.Buffer
	fr := http2.NewFramer(&wire, nil)
	message := func(n int) []byte { return append([]byte{0, 0, 0, 0, byte(n)}, make([]byte, n)...) }
	data := append(append(message(0), message(7)...), message(200)...)

	require.NoError(t, fr.WriteSettings())
	require.NoError(t, fr.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 14}))
	require.NoError(t, fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("ab")}))
	require.NoError(t, fr.WriteContinuation(1, true, []byte("cd")))
	require.NoError(t, fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte("ab"), EndHeaders: true}))
	require.NoError(t, fr.WriteData(1, false, data[:3]))
	require.NoError(t, fr.WriteData(3, false, message(1)))
	require.NoError(t, fr.WriteData(1, false, data[3:15]))
	require.NoError(t, fr.WriteData(1, false, nil))
	require.NoError(t, fr.WriteData(1, false, data[15:]))
	require.NoError(t, fr.WriteData(1, false, message(9)[:13]))
	require.NoError(t, fr.WritePing(false, [8]byte{}))

	for size := 1; size <= wire.Len(); size++ {
		var f frames
		watched := map[uint32]*tally{1: {}, 5: {}}
		changes := 0
		for chunk := range chunks(wire.Bytes(), size) {
			if f.write(chunk, watched) {
				changes++
			}
		}
		assert.Equal(t, 1, watched[1].headers, "pieces of %d", size)
		assert.Equal(t, 3, watched[1].messages, "pieces of %d", size)
		assert.Zero(t, *watched[5])
		assert.Positive(t, changes)
		if size == 1 {
			assert.Equal(t, 4, changes, "a block of headers and three messages")
		}
	}
}

func chunks(b []byte, size int) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			n := min(size, len(b))
			if !yield(b[:n]) {
				return
			}
			b = b[n:]
		}
	}
}

// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package jina

// raceEnabled tells that the race detector is on, which allocates by itself.
const raceEnabled = false

// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

// RaceEnabled tells the external tests whether the race detector is on.
const RaceEnabled = raceEnabled

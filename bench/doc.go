// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench compares the suite with no interceptor, with gRPC's own retry, and
// with other libraries: on an invoker that does nothing, where only the library's
// own cost is seen, and over an in-memory connection. All contenders retry the same
// calls the same number of times, without waits.
//
//	make bench
//
// It is a module of its own, so that the other libraries are no dependency of the
// suite's users.
package bench

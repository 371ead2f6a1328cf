// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"fmt"
	"strings"
)

// Metadata of Jina's.
const (
	// By these a client tells the gateway of a stream how it wants its responses.
	prefetchKey = "__prefetch__"
	inOrderKey  = "__results_in_order__"
	// Under this Jina's client has the number of attempts, in the trailer of an error.
	attemptsKey = "jina-client-attempts"
)

// sendable returns why metadata cannot be sent; nil if they can. gRPC itself would refuse
// them later, without a word of where they are from, or leave them out.
func sendable(key string, values []string) error {
	key = strings.ToLower(key)
	switch key {
	case prefetchKey, inOrderKey:
		return fmt.Errorf("the key %q is reserved; there is an option for it", key)
	case "", "content-type", "user-agent", "te",
		"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		return fmt.Errorf("the key %q is not for metadata", key)
	}
	if strings.HasPrefix(key, "grpc-") {
		return fmt.Errorf("the key %q is gRPC's own", key)
	}
	if strings.Trim(key, "0123456789abcdefghijklmnopqrstuvwxyz-_.") != "" {
		return fmt.Errorf("the key %q must be of letters, digits, '-', '_' and '.'", key)
	}
	for _, value := range values {
		if !strings.HasSuffix(key, "-bin") && strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return fmt.Errorf("the value %q of the key %q must be of printable ASCII, since the key does not end in -bin",
				value, key)
		}
	}
	return nil
}

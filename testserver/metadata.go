// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/metadata"
)

// reserved tells the keys that grpc drops from a server's metadata in silence.
func reserved(key string) bool {
	switch key {
	case "content-type", "user-agent", "te", "connection",
		"grpc-message-type", "grpc-encoding", "grpc-message", "grpc-status", "grpc-timeout":
		return true
	}
	return false
}

// pairs returns md with key, value, key, value … added; md stays as it is. It
// refuses what grpc would drop, since a script must not lose what it says.
func pairs(md metadata.MD, kv []string) (metadata.MD, error) {
	if len(kv)%2 != 0 {
		return nil, fmt.Errorf("%d strings are no pairs of key and value", len(kv))
	}
	out := md.Copy()
	if out == nil {
		out = metadata.MD{}
	}
	for i := 0; i < len(kv); i += 2 {
		key := strings.ToLower(kv[i])
		if err := checkPair(key, kv[i+1]); err != nil {
			return nil, err
		}
		out[key] = append(out[key], kv[i+1])
	}
	return out, nil
}

func checkPair(key, value string) error {
	if key == "" {
		return errors.New("a key is empty")
	}
	for _, r := range key {
		if !(r >= 'a' && r <= 'z') && !(r >= '0' && r <= '9') && !strings.ContainsRune("-_.", r) {
			return fmt.Errorf("key %q has the character %q", key, r)
		}
	}
	if reserved(key) {
		return fmt.Errorf("key %q is reserved for gRPC itself", key)
	}
	if strings.HasSuffix(key, "-bin") {
		return nil
	}
	for _, c := range []byte(value) {
		if c < 0x20 || c > 0x7e {
			return fmt.Errorf("value %q of key %q is not printable ASCII", value, key)
		}
	}
	return nil
}

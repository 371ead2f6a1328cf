// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"fmt"
	"strings"
)

// configLevel is a kind of object in a service config, which has its own keys.
type configLevel int

const (
	topLevel configLevel = iota
	methodLevel
	nameLevel
	retryLevel
	throttlingLevel
	healthLevel
	levels
)

// String says where the keys of the level stand.
func (l configLevel) String() string {
	return [levels]string{
		"the config itself", "an entry of methodConfig", "an entry of name",
		"a retryPolicy", "retryThrottling", "healthCheckConfig",
	}[l]
}

// keys are those that grpc-go reads.
func (l configLevel) keys() []string {
	switch l {
	case topLevel:
		return []string{
			"loadBalancingPolicy", "loadBalancingConfig", "methodConfig", "retryThrottling", "healthCheckConfig",
		}
	case methodLevel:
		return []string{
			"name", "waitForReady", "timeout", "maxRequestMessageBytes", "maxResponseMessageBytes", "retryPolicy",
		}
	case nameLevel:
		return []string{"service", "method"}
	case retryLevel:
		return []string{"maxAttempts", "initialBackoff", "maxBackoff", "backoffMultiplier", "retryableStatusCodes"}
	case throttlingLevel:
		return []string{"maxTokens", "tokenRatio"}
	case healthLevel:
		return []string{"serviceName"}
	case levels:
	}
	return nil
}

// object reads the fields of an object by the keys of its level, as encoding/json
// does: in any letter case, and of two the last. It reports what does not fit; ok is
// false if there is no object.
func (c *configCheck) object(at place, level configLevel) (fields map[string]place, ok bool) {
	if !at.object() {
		c.refuse(at, "it must be an object", "write {…} with "+list(level.keys(), "and"))
		return nil, false
	}
	fields = make(map[string]place)
	keys := level.keys()
	var strange []namedPlace
	for key, value := range at.members() {
		if c.full() {
			break
		}
		known := match(key, keys)
		if known == "" {
			if len(strange) < maxFindings {
				strange = append(strange, namedPlace{value, key})
			}
			continue
		}
		if key != known {
			c.warn(value, fmt.Sprintf("grpc-go alone takes the key %q in this letter case", excerpt(key)),
				fmt.Sprintf("write %q", known))
		}
		if _, again := fields[known]; again {
			c.block(value, fmt.Sprintf("the key %q is there twice; gRPC mixes both values, or takes the last", known),
				"leave one of them out")
		}
		fields[known] = value
	}
	for _, s := range strange {
		reason, remedy := strangeKey(s.key, level, fields)
		if level == methodLevel && strings.EqualFold(s.key, "hedgingPolicy") {
			c.block(s.place, reason, remedy)
		} else {
			c.warn(s.place, reason, remedy)
		}
	}
	return fields, true
}

// namedPlace is a member of an object.
type namedPlace struct {
	place

	key string
}

// optional returns a field that has a value. One that is null counts as left out, which
// is reported.
func (c *configCheck) optional(fields map[string]place, key string) (at place, ok bool) {
	at, ok = fields[key]
	if ok && at.null() {
		c.warn(at, "null counts as left out", "leave it out, or give it a value")
		return at, false
	}
	return at, ok
}

// strangeKey says what is wrong with a key that grpc-go does not read at its level.
func strangeKey(key string, level configLevel, fields map[string]place) (reason, remedy string) {
	reason = "grpc-go has no such key in " + level.String() + ", and ignores it"
	if meant, remedy := foreignKey(key, level, fields); meant != "" {
		return meant, remedy
	}
	if len(key) > maxExcerpt {
		return reason, "leave it out"
	}
	bare := strings.NewReplacer("_", "", "-", "", " ", "").Replace(key)
	if meant := match(bare, level.keys()); meant != "" {
		return reason, fmt.Sprintf("write %q", meant)
	}
	for other := range levels {
		if match(bare, other.keys()) != "" {
			return reason, "move it to " + other.String()
		}
	}
	if meant := nearest(key, level.keys()); meant != "" {
		return reason, fmt.Sprintf("write %q", meant)
	}
	return reason, "leave it out; the keys there are " + list(level.keys(), "and")
}

// foreignKey knows the keys that gRPC defines and grpc-go does not read.
func foreignKey(key string, level configLevel, fields map[string]place) (reason, remedy string) {
	switch {
	case level == methodLevel && strings.EqualFold(key, "hedgingPolicy"):
		if policy, ok := fields["retryPolicy"]; ok && !policy.null() {
			return "grpc-go has no hedging and goes by retryPolicy; other languages refuse an entry with both",
				"leave one of them out"
		}
		return "grpc-go has no hedging and ignores it: each call is made once", "write a retryPolicy"
	case level == retryLevel && strings.EqualFold(key, "perAttemptRecvTimeout"):
		return "grpc-go does not bound attempts and ignores it", "leave it out, and set Policy.AttemptTimeout"
	case level == topLevel && match(key, []string{
		"serviceConfig", "clientLanguage", "clientHostname", "percentage",
	}) != "":
		return "this belongs to the form of DNS records, and grpc-go ignores it here",
			`write what is in "serviceConfig" alone`
	}
	return "", ""
}

// match returns the one of the words that encoding/json takes a key for.
func match(key string, words []string) string {
	for _, word := range words {
		if strings.EqualFold(key, word) {
			return word
		}
	}
	return ""
}

// nearest returns the one of the words that a misspelt one was meant to be, or "".
func nearest(misspelt string, words []string) string {
	if len(misspelt) > maxExcerpt {
		return ""
	}
	found, least := "", maxExcerpt
	for _, word := range words {
		d := distance(strings.ToLower(misspelt), strings.ToLower(word))
		if d < least && d <= 1+len(word)/6 {
			found, least = word, d
		}
	}
	return found
}

// distance is the number of bytes to insert, remove or replace between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// list joins words for people.
func list(words []string, and string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " " + and + " " + words[last]
}

// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Finding is something in a service config that gRPC refuses, or takes and then
// ignores or reads otherwise than it looks.
type Finding struct {
	// Path is where it is, like "methodConfig[0].retryPolicy.maxAttempts"; empty for
	// the whole config.
	Path string
	// Line is its line, from 1.
	Line int
	// Value is the JSON there, shortened; empty if nothing is there.
	Value string
	// Reason is what is wrong with it.
	Reason string
	// Remedy is what to write instead; empty if nobody but the author can tell.
	Remedy string
	// Refused says that grpc.NewClient fails with the config. Else it is accepted, and
	// this part of it does not do what it says, or does it in grpc-go alone.
	Refused bool
}

// String returns the finding as one line.
func (f Finding) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "line %d: ", f.Line)
	switch {
	case f.Path == "" && f.Value != "":
		fmt.Fprintf(&text, "the config is %s: ", f.Value)
	case f.Path != "" && f.Value != "":
		fmt.Fprintf(&text, "%s is %s: ", f.Path, f.Value)
	case f.Path != "":
		text.WriteString(f.Path + ": ")
	}
	text.WriteString(f.Reason)
	if f.Remedy != "" {
		text.WriteString("; " + f.Remedy)
	}
	return text.String()
}

// maxExcerpt is the most characters of a value that are shown.
const maxExcerpt = 60

// excerpt shortens a value.
func excerpt(text string) string { return shorten(text, maxExcerpt) }

// shorten makes text of any length a line of so many characters for people.
func shorten(text string, most int) string {
	enough := 4 * most // bytes, before space is squeezed
	cut := len(text) > enough
	if cut {
		text = strings.TrimRightFunc(text[:enough], func(r rune) bool { return r == utf8.RuneError }) // half a character
	}
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	if cut {
		return text + "…"
	}
	return text
}

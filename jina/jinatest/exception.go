// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jinatest

import (
	"fmt"
	"strings"
	"unicode"

	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// Exception is an error of a [Handler] that clients see as the Python exception that it
// describes. What is not valid UTF-8 in it is replaced.
type Exception struct { //nolint:errname // what it is to Jina
	Name   string   // its class, like "ValueError"; "Exception" if it is empty
	Args   []string // what it was made of
	Stacks []string // the lines of its traceback; none are made up
}

// Error is the exception as Python's repr writes it, which is the description that
// clients get: ValueError('no text').
func (e *Exception) Error() string {
	args := make([]string, len(e.Args))
	for i, arg := range e.Args {
		args[i] = repr(arg)
	}
	return e.class() + "(" + strings.Join(args, ", ") + ")"
}

func (e *Exception) class() string {
	if e.Name == "" {
		return "Exception"
	}
	return e.Name
}

// valid returns a copy that can be sent.
func (e *Exception) valid() *Exception {
	return &Exception{Name: valid(e.class()), Args: validAll(e.Args), Stacks: validAll(e.Stacks)}
}

// status is the exception on the wire; it must be valid.
func (e *Exception) status(executor string) *jinapb.StatusProto {
	return &jinapb.StatusProto{
		Code:        jinapb.StatusProto_ERROR,
		Description: e.Error(),
		Exception: &jinapb.StatusProto_ExceptionProto{
			Name:     e.Name,
			Args:     e.Args,
			Stacks:   e.Stacks,
			Executor: executor,
		},
	}
}

func valid(text string) string { return strings.ToValidUTF8(text, string(unicode.ReplacementChar)) }

func validAll(texts []string) []string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = valid(text)
	}
	return all
}

// repr writes a string as Python does.
func repr(text string) string {
	quote := '\''
	if strings.Contains(text, "'") && !strings.Contains(text, `"`) {
		quote = '"'
	}
	var b strings.Builder
	b.WriteRune(quote)
	for _, r := range text {
		switch {
		case r == quote || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xff:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteRune(quote)
	return b.String()
}

// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// CheckServiceConfig tells what is wrong with a service config before a channel is
// made with it, in the order of the text. It returns nil if there is nothing to say.
//
// It finds what grpc.NewClient refuses in grpc.WithDefaultServiceConfig, and what that
// accepts without effect: keys that gRPC does not know, names that never match, and
// policies that it does not look at. It also finds what other implementations of gRPC
// read differently, for a config is often shared. Names of services and methods are
// held against the generated code that is linked into the program, and balancers
// against those that are linked; so the check is best run in a test of the program that
// uses the config. A retryPolicy for a linked method that streams requests is a finding
// too, unless it is there by default for all methods: gRPC's own replay can report a
// failure of such a stream as success.
//
// Whether gRPC refuses the config is settled by making a channel with it, which does
// not connect and is closed at once. After 100 findings there is one last that says so.
// Any text may be checked, and by several goroutines at a time.
func CheckServiceConfig(text string) []Finding {
	return checkConfig(text).sorted()
}

func checkConfig(text string) *configCheck {
	check := &configCheck{text: text}
	check.top()
	check.settle()
	check.sort()
	return check
}

// maxFindings is where a check stops: nobody reads on, and a text that is no service
// config could have millions.
const maxFindings = 100

// configCheck is one run through a service config.
type configCheck struct {
	text     string
	findings []foundAt
	names    configNames
	broken   bool // not JSON, so that nothing else was looked at

	pickFirst bool // the balancer will be pick_first
	validated bool // gRPC looks at the values of the policy at hand
}

// foundAt is a finding and its place in the text, which its line comes from.
type foundAt struct {
	Finding

	offset int
	blocks bool // the suite cannot do what gRPC makes of it
}

// full says that there are findings enough.
func (c *configCheck) full() bool { return len(c.findings) >= maxFindings }

// note keeps a finding.
func (c *configCheck) note(at place, refused bool, reason, remedy string) {
	if c.full() {
		return
	}
	c.findings = append(c.findings, foundAt{
		Finding: Finding{
			Path: at.path, Value: excerpt(at.text), Reason: reason, Remedy: remedy, Refused: refused,
		},
		offset: at.offset,
	})
}

// refuse keeps a finding that gRPC fails with.
func (c *configCheck) refuse(at place, reason, remedy string) { c.note(at, true, reason, remedy) }

// warn keeps a finding that gRPC takes.
func (c *configCheck) warn(at place, reason, remedy string) { c.note(at, false, reason, remedy) }

// block keeps a finding that gRPC takes, but WithServiceConfig cannot.
func (c *configCheck) block(at place, reason, remedy string) {
	if !c.full() {
		c.warn(at, reason, remedy)
		c.findings[len(c.findings)-1].blocks = true
	}
}

// obstacle returns why the suite cannot run a config, all reasons in one error.
func (c *configCheck) obstacle() error {
	var problems []error
	for _, f := range c.findings {
		if f.Refused || f.blocks {
			problems = append(problems, errors.New(f.String()))
		}
	}
	return errors.Join(problems...)
}

// invalid keeps a finding that gRPC fails with where it validates at all.
func (c *configCheck) invalid(at place, reason, remedy string) {
	c.note(at, c.validated, reason, remedy)
}

// top checks the whole text.
func (c *configCheck) top() {
	if c.text == "" {
		c.broken = true
		c.refuse(place{}, "the config is empty", `write "{}" for one that says nothing`)
		return
	}
	var raw json.RawMessage
	if err := json.Unmarshal([]byte(c.text), &raw); err != nil {
		c.broken = true
		c.refuse(place{offset: syntaxOffset(err, len(c.text))}, "this is not JSON: "+err.Error(), "")
		return
	}
	start := len(c.text) - len(strings.TrimLeft(c.text, " \t\r\n"))
	at := place{text: strings.TrimSpace(c.text), offset: start}
	if at.null() {
		c.warn(at, "null is taken for a config that says nothing", "write {}")
		return
	}
	fields, ok := c.object(at, topLevel)
	if !ok {
		return
	}
	methods, present := c.optional(fields, "methodConfig")
	if present {
		c.methods(methods)
	}
	c.balancer(fields)
	if throttling, ok := c.optional(fields, "retryThrottling"); ok {
		c.throttling(throttling, present)
	}
	if health, ok := c.optional(fields, "healthCheckConfig"); ok {
		c.health(health)
	}
}

// syntaxOffset is the offset of the byte that an error of encoding/json is about.
func syntaxOffset(err error, size int) int {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return min(max(int(syntax.Offset)-1, 0), size)
	}
	return 0
}

// settle holds the findings against what gRPC itself says, which has the last word:
// of keys that are written twice it merges what they hold, and another version of it
// may take more or less than the one that this file was written for.
func (c *configCheck) settle() {
	if c.full() {
		defer func() {
			c.findings = append(c.findings, foundAt{
				Finding: Finding{Reason: fmt.Sprintf("there are %d findings, and the check ended with them", maxFindings)},
				offset:  len(c.text),
			})
		}()
	}
	if c.broken {
		return
	}
	refusal, known := refusalOf(c.text)
	if !known {
		return
	}
	if refusal == "" {
		c.findings = slices.DeleteFunc(c.findings, func(f foundAt) bool { return f.Refused })
		return
	}
	if !slices.ContainsFunc(c.findings, func(f foundAt) bool { return f.Refused }) {
		c.findings = append(c.findings, foundAt{
			Finding: Finding{Reason: shorten(refusal, 4*maxExcerpt), Refused: true},
		})
	}
}

// refusalOf returns what grpc.NewClient has against a config, "" if nothing; known is
// false if it fails for another reason.
func refusalOf(text string) (refusal string, known bool) {
	conn, err := grpc.NewClient("passthrough:///check",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(text))
	if err == nil {
		_ = conn.Close()
		return "", true
	}
	_, after, found := strings.Cut(err.Error(), "default service config is invalid: ")
	if !found {
		return "", false
	}
	return "gRPC refuses the config: " + after, true
}

// sorted returns the findings in their public form.
func (c *configCheck) sorted() []Finding {
	if len(c.findings) == 0 {
		return nil
	}
	sorted := make([]Finding, 0, len(c.findings))
	for _, f := range c.findings {
		sorted = append(sorted, f.Finding)
	}
	return sorted
}

// sort brings the findings into the order of the text, and finds their lines.
func (c *configCheck) sort() {
	slices.SortStableFunc(c.findings, func(a, b foundAt) int { return a.offset - b.offset })
	line, counted := 1, 0
	for i := range c.findings {
		f := &c.findings[i]
		line += strings.Count(c.text[counted:f.offset], "\n")
		counted, f.Line = f.offset, line
	}
}

// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"errors"
	"fmt"
)

// script is what a method's next attempts meet.
type script struct {
	steps []Step
	used  int // attempts that met steps[0]
}

// next takes the next step; false means that none is left.
func (c *script) next() (Step, bool) {
	if c == nil || len(c.steps) == 0 {
		return Step{}, false
	}
	step := c.steps[0]
	c.used++
	if step.times != forever && c.used >= max(step.times, 1) {
		c.steps, c.used = c.steps[1:], 0
	}
	return step, true
}

// Script says what the next attempts of a method meet: each takes one step, in
// order, and when none is left the server behaves as [OK]. It replaces what is
// left of an earlier script; without steps it only does that.
//
// The method is "/pkg.Service/Method" (the generated _FullMethodName) or
// "pkg.Service/Method"; it must be linked into the program or registered. The
// empty method stands for all of them: its steps are for the attempts whose own
// method has none left.
//
// A mistake (an unknown method, a faulty step) ends the test through Fatalf. On
// a server without a test, every attempt from then on ends with INTERNAL and a
// message that names the mistake.
func (s *Server) Script(name string, steps ...Step) {
	s.helper()
	key := ""
	if name != "" {
		m, err := s.method(name)
		if err != nil {
			s.misuse("Script: %v", err)
			return
		}
		key = m.name
	}
	if err := checkSteps(steps); err != nil {
		s.misuse("Script: %q: %v", name, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts[key] = &script{steps: append([]Step(nil), steps...)}
}

func checkSteps(steps []Step) error {
	var errs []error
	for i, step := range steps {
		if err := step.check(); err != nil {
			errs = append(errs, fmt.Errorf("step %d: %w", i+1, err))
		}
		if step.times == forever && i < len(steps)-1 {
			errs = append(errs, fmt.Errorf("step %d: Forever leaves no attempt for step %d", i+1, i+2))
		}
	}
	return errors.Join(errs...)
}

// nextStep needs s.mu.
func (s *Server) nextStep(method string) (Step, bool) {
	if step, ok := s.scripts[method].next(); ok {
		return step, true
	}
	return s.scripts[""].next()
}

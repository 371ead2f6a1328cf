// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jinatest

import (
	"maps"
	"regexp"
	"slices"
)

// defaultEndpoint is how Jina lists the default endpoint.
const defaultEndpoint = "/default"

// executor is one station of the flow. It is never changed.
type executor struct {
	name     string
	handlers map[string]Handler // by endpoint
}

// handler returns who answers an endpoint, nil if nobody does.
func (e executor) handler(endpoint string) Handler {
	if f := e.handlers[endpoint]; f != nil {
		return f
	}
	return e.handlers[""]
}

// with returns the executors with one more handler; those given stay as they are.
func with(all []executor, name, endpoint string, f Handler) []executor {
	all = slices.Clone(all)
	at := slices.IndexFunc(all, func(e executor) bool { return e.name == name })
	if at < 0 {
		return append(all, executor{name, map[string]Handler{endpoint: f}})
	}
	handlers := maps.Clone(all[at].handlers)
	handlers[endpoint] = f
	all[at].handlers = handlers
	return all
}

// endpoints lists what all executors have, sorted.
func endpoints(all []executor) []string {
	found := map[string]bool{}
	for _, e := range all {
		for endpoint := range e.handlers {
			if endpoint == "" {
				endpoint = defaultEndpoint
			}
			found[endpoint] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// targets returns those executors that a header's target_executor means.
func targets(all []executor, expression string) ([]executor, error) {
	if expression == "" {
		return all, nil
	}
	target, err := regexp.Compile(expression)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(all), func(e executor) bool {
		// Python's match begins at the beginning, and ends anywhere.
		at := target.FindStringIndex(e.name)
		return at == nil || at[0] != 0
	}), nil
}

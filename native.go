// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// This file is about policies that gRPC's own retry can run, in any language.

// retryPolicy returns a policy in gRPC's own form. The error lists all that it has no form
// for.
func (p *rule) retryPolicy() (*retryPolicy, error) {
	var problems []error
	refuse := func(refused bool, field string, value any, why string) {
		if refused {
			problems = append(problems, invalid(field, value, why))
		}
	}
	const none = "must not be set: gRPC's own retry has nothing of the kind"
	refuse(p.MaxAttempts < 2, "MaxAttempts", p.MaxAttempts, "must be at least 2")
	refuse(len(p.Codes) == 0, "Codes", p.Codes, "must not be empty")
	refuse(p.AttemptTimeout > 0, "AttemptTimeout", p.AttemptTimeout, none)
	refuse(p.IdleTimeout > 0, "IdleTimeout", p.IdleTimeout, none)
	refuse(p.ConnectWait != defaultConnectWait, "ConnectWait", p.ConnectWait, none)
	refuse(p.MaxServerDelay != defaultMaxServerDelay, "MaxServerDelay", p.MaxServerDelay, none)
	refuse(p.MaxConnect > 0, "MaxConnect", p.MaxConnect, none)
	refuse(p.MaxLost > 0, "MaxLost", p.MaxLost, none)
	refuse(p.MaxAnswered > 0, "MaxAnswered", p.MaxAnswered, none)
	refuse(p.Retryable != nil, "Retryable", "set", none)
	refuse(p.ResetAfter != ResetAfter{}, "ResetAfter", p.ResetAfter, none)
	refuse(p.Recovery.mode != commits, "Recovery", p.Recovery, none)
	refuse(p.Check != nil, "Check", "set", none)
	refuse(p.Backoff.Delay != nil, "Backoff.Delay", "set", none)
	refuse(p.Backoff.Initial < 0, "Backoff.Initial", p.Backoff.Initial, "must be above 0")
	refuse(p.Backoff.Jitter != defaultBackoffJitter, "Backoff.Jitter", p.Backoff.Jitter, "must be that of gRPC, 0.2")
	if problems != nil {
		return nil, errors.Join(problems...)
	}
	r := &retryPolicy{
		MaxAttempts:       p.MaxAttempts,
		InitialBackoff:    jsonDuration(p.Backoff.Initial),
		MaxBackoff:        jsonDuration(p.Backoff.Max),
		BackoffMultiplier: jsonNumber(p.Backoff.Multiplier),
	}
	for _, code := range slices.Sorted(slices.Values(p.Codes)) {
		r.RetryableStatusCodes = append(r.RetryableStatusCodes, jsonCode(code))
	}
	r.RetryableStatusCodes = slices.Compact(r.RetryableStatusCodes)
	return r, nil
}

// element returns the rule as an element of methodConfig for some names; without a
// retryPolicy if gRPC must not retry them.
func (p *rule) element(names []methodName, retried bool) methodConfig {
	m := methodConfig{names: names}
	if retried {
		m.retry, _ = p.retryPolicy()
	}
	if p.Timeout > 0 {
		timeout := jsonDuration(p.Timeout)
		m.timeout = &timeout
	}
	return m
}

// nativeMethod tells why gRPC's own retry must not have a method, whose rule is given.
func nativeMethod(name string, p *rule) error {
	descriptor := linkedMethod(name)
	switch {
	case descriptor == nil:
		return errors.New("it is not linked, so that nobody knows whether it is a stream of requests")
	case descriptor.IsStreamingClient():
		return errors.New("it is a stream of requests, whose replay by gRPC may report a failure as success, or never end")
	}
	if ok, why := p.mayRepeat(name); !ok {
		return errors.New(why)
	}
	_, err := p.retryPolicy()
	return err
}

// linkedMethods returns the methods of a service, in the order of their names; nil if
// it is not linked.
func linkedMethods(service string) []protoreflect.MethodDescriptor {
	descriptor, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	found, ok := descriptor.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil
	}
	methods := make([]protoreflect.MethodDescriptor, found.Methods().Len())
	for i := range methods {
		methods[i] = found.Methods().Get(i)
	}
	slices.SortFunc(methods, func(a, b protoreflect.MethodDescriptor) int {
		return strings.Compare(string(a.Name()), string(b.Name()))
	})
	return methods
}

// ServiceConfig returns a service config that lets gRPC's own retry run the policies of
// the Retrier as far as it can, in a form that gRPC takes in all languages: for other
// clients, or for a resolver. (For a connection of this program, see
// [WithChannelRetry].) For each service that is linked and has a policy, or a method
// with one, its unary and server-streaming methods are listed which may be repeated;
// an element without retryPolicy keeps a wider policy from the others. Policies with
// fields that gRPC has no form for are left out in the same way; [Retrier.Policy] has
// them all. Backoffs are from 1 ms to 20 days, which all languages take. A default
// policy is for all other methods only if its Repeat is [RepeatAlways], streams of
// requests among them.
func (r *Retrier) ServiceConfig() string {
	policies := r.current()
	if policies == nil {
		return "{}"
	}
	config := policies.serviceConfig()
	for _, m := range config.methods {
		if m.retry != nil {
			m.retry.clip()
		}
	}
	return config.String()
}

// Backoffs that gRPC takes in all languages: the C core counts in milliseconds, and the
// timers of Node.js in 31 bits of them, less the jitter.
const (
	shortestBackoff = jsonDuration(time.Millisecond)
	longestBackoff  = jsonDuration(20 * 24 * time.Hour)
)

// clip makes the backoffs such that all languages take them.
func (r *retryPolicy) clip() {
	r.InitialBackoff = min(max(r.InitialBackoff, shortestBackoff), longestBackoff)
	r.MaxBackoff = min(max(r.MaxBackoff, shortestBackoff), longestBackoff)
}

func (p *policies) serviceConfig() *serviceConfig {
	services := map[string][]string{} // methods with a rule of their own
	for name := range p.services {
		services[name] = nil
	}
	for name := range p.methods {
		service, _, _ := strings.Cut(name, "/")
		services[service] = append(services[service], name)
	}
	c := &serviceConfig{}
	for _, service := range slices.Sorted(maps.Keys(services)) {
		c.methods = append(c.methods, p.serviceElements(service, services[service])...)
	}
	if known := p.fallback.known(); known || p.fallback.Timeout > 0 {
		c.methods = append(c.methods, p.fallback.element([]methodName{{}}, known))
	}
	return c
}

// serviceElements returns the elements of a service's methods, each rule's together,
// and of the service itself. A method whose rule is not the service's is there in any
// case, or it would get the service's.
func (p *policies) serviceElements(service string, own []string) []methodConfig {
	linked := linkedMethods(service)
	names := own
	for _, m := range linked {
		names = append(names, service+"/"+string(m.Name()))
	}
	slices.Sort(names)
	rest := p.services[service]
	// Of a service that is not linked nobody knows the methods, but its user does.
	all := linked == nil && rest.known()
	if rest == nil {
		rest = p.fallback
	}
	type group struct {
		rule    *rule
		retried bool
	}
	var elements []methodConfig
	index := map[group]int{}
	for _, name := range slices.Compact(names) {
		rule := p.find(name)
		retried := nativeMethod(name, rule) == nil || linked == nil && rule.known()
		if rule == rest && retried == all {
			continue
		}
		i, ok := index[group{rule, retried}]
		if !ok {
			i = len(elements)
			index[group{rule, retried}] = i
			elements = append(elements, rule.element(nil, retried))
		}
		elements[i].names = append(elements[i].names, newMethodName(name))
	}
	return append(elements, rest.element([]methodName{{Service: service}}, all))
}

// known tells whether somebody knows that whatever the rule is for may be repeated, and
// gRPC can run it.
func (p *rule) known() bool {
	if p == nil || p.Repeat != RepeatAlways {
		return false
	}
	_, err := p.retryPolicy()
	return err == nil
}

// newChannel gives methods to the channel, each under the rule that it has.
func newChannel(s *settings, p *policies) (*channel, error) {
	c := &channel{rules: map[string]*rule{}, resolver: s.resolver}
	config := s.config.withoutRetries()
	config.throttling = (*retryThrottling)(s.throttle)
	var problems []error
	for _, name := range s.channel {
		methods, err := channelMethods(name, p)
		if err != nil {
			problems = append(problems, fmt.Errorf("WithChannelRetry(%q): %w", name, err))
		}
		for _, method := range methods {
			native := asNative(p.find(method))
			if c.rules["/"+method] == nil {
				config.methods = append(config.methods, native.elementIn(config, method))
			}
			c.rules["/"+method] = native
			c.attempts = max(c.attempts, native.MaxAttempts)
		}
	}
	c.config = config.String()
	return c, errors.Join(problems...)
}

// channelMethods returns the methods that a name given to the channel means: one, or
// those of a service that are not streams of requests.
func channelMethods(name string, p *policies) ([]string, error) {
	canonical, err := checkName(name)
	if err != nil {
		return nil, err
	}
	if strings.Contains(canonical, "/") {
		return []string{canonical}, nativeMethod(canonical, p.find(canonical))
	}
	linked := linkedMethods(canonical)
	if linked == nil {
		return nil, errors.New("the service is not linked, so that nobody knows its methods")
	}
	var methods []string
	var problems []error
	for _, m := range linked {
		if m.IsStreamingClient() {
			continue
		}
		method := canonical + "/" + string(m.Name())
		methods = append(methods, method)
		if err := nativeMethod(method, p.find(method)); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", m.Name(), err))
		}
	}
	return methods, errors.Join(problems...)
}

// elementIn returns the element of a method that is given to the channel: with all else
// that the user's own config says of it, since elements are not merged.
func (p *rule) elementIn(config *serviceConfig, method string) methodConfig {
	element := p.element([]methodName{newMethodName(method)}, true)
	if user := config.find(method); user != nil {
		element.rest = user.rest
	}
	config.remove(newMethodName(method)) // no name may stand twice
	return element
}

// withoutRetries returns what is left of a config where gRPC has nothing to retry: what
// it says of retries and timeouts is then in the policies.
func (c *serviceConfig) withoutRetries() *serviceConfig {
	if c == nil {
		return &serviceConfig{}
	}
	left := &serviceConfig{rest: c.rest}
	for _, m := range c.methods {
		left.methods = append(left.methods, methodConfig{names: m.names, rest: m.rest})
	}
	return left
}

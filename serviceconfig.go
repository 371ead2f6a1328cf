// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// serviceConfig is a gRPC service config, as far as retries go; what else it says is
// kept as it is.
type serviceConfig struct {
	methods    []methodConfig
	throttling *retryThrottling
	rest       map[string]json.RawMessage
}

// methodConfig is an element of methodConfig.
type methodConfig struct {
	names   []methodName
	timeout *jsonDuration
	retry   *retryPolicy
	rest    map[string]json.RawMessage
}

// methodName is a name that a methodConfig is for: a method, a service, or all.
type methodName struct {
	Service string `json:"service,omitempty"`
	Method  string `json:"method,omitempty"`
}

// String returns the name as [WithMethodPolicy] takes it; it is empty for all methods.
func (n methodName) String() string {
	if n.Method == "" {
		return n.Service
	}
	return n.Service + "/" + n.Method
}

func newMethodName(name string) methodName {
	service, method, _ := strings.Cut(name, "/")
	return methodName{service, method}
}

// retryPolicy is gRFC A6's.
type retryPolicy struct {
	MaxAttempts          int          `json:"maxAttempts"`
	InitialBackoff       jsonDuration `json:"initialBackoff"`
	MaxBackoff           jsonDuration `json:"maxBackoff"`
	BackoffMultiplier    jsonNumber   `json:"backoffMultiplier"`
	RetryableStatusCodes []jsonCode   `json:"retryableStatusCodes"`
}

// retryThrottling is gRFC A6's too.
type retryThrottling struct {
	MaxTokens  float64 `json:"maxTokens"`
	TokenRatio float64 `json:"tokenRatio"`
}

// maxNativeAttempts is what gRFC A6 caps maxAttempts at.
const maxNativeAttempts = 5

// takeServiceConfig reads a config whose retries the suite is to run.
func takeServiceConfig(text string) (*serviceConfig, error) {
	if err := checkConfig(text).obstacle(); err != nil {
		return nil, err
	}
	return parseServiceConfig(text)
}

// parseServiceConfig reads a config that [CheckServiceConfig] has nothing against.
func parseServiceConfig(text string) (*serviceConfig, error) {
	var rest map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &rest); err != nil {
		return nil, fmt.Errorf("no JSON object: %w", err)
	}
	c := &serviceConfig{}
	var methods []map[string]json.RawMessage
	err := take(rest, "methodConfig", &methods)
	if err == nil {
		err = take(rest, "retryThrottling", &c.throttling)
	}
	for i, m := range methods {
		parsed, problem := parseMethodConfig(m)
		if problem != nil && err == nil {
			err = fmt.Errorf("methodConfig[%d]: %w", i, problem)
		}
		c.methods = append(c.methods, parsed)
	}
	c.rest = rest
	return c, err
}

func parseMethodConfig(rest map[string]json.RawMessage) (methodConfig, error) {
	m := methodConfig{rest: rest}
	var ignored json.RawMessage
	for name, into := range map[string]any{
		"name": &m.names, "timeout": &m.timeout, "retryPolicy": &m.retry, "hedgingPolicy": &ignored,
	} {
		if err := take(rest, name, into); err != nil {
			return m, err
		}
	}
	return m, nil
}

// take moves a field out of an object, whose name gRPC takes in any letter case.
func take(from map[string]json.RawMessage, name string, into any) error {
	for key, value := range from {
		if strings.EqualFold(key, name) {
			delete(from, key)
			if err := json.Unmarshal(value, into); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// find returns what gRPC applies to a method, "pkg.Service/Method": one element, or
// nothing. They are not merged.
func (c *serviceConfig) find(method string) *methodConfig {
	exact := newMethodName(method)
	for _, name := range []methodName{exact, {Service: exact.Service}, {}} {
		for i := range c.methods {
			if slices.Contains(c.methods[i].names, name) {
				return &c.methods[i]
			}
		}
	}
	return nil
}

// remove takes a name out of the element that it is in.
func (c *serviceConfig) remove(name methodName) {
	for i := range c.methods {
		is := func(n methodName) bool { return n == name }
		if m := &c.methods[i]; slices.ContainsFunc(m.names, is) {
			if m.names = slices.DeleteFunc(slices.Clone(m.names), is); len(m.names) == 0 {
				c.methods = slices.Delete(slices.Clone(c.methods), i, i+1)
			}
			return
		}
	}
}

// retries tells whether the config says anything of retries, to anybody.
func (c *serviceConfig) retries() bool {
	return slices.ContainsFunc(c.methods, func(m methodConfig) bool { return m.retry != nil && len(m.names) > 0 })
}

// apply sets the policies of the names in a config that says something of retries. One
// that has no retryPolicy there is not retried, as with gRPC.
func (c *serviceConfig) apply(s *settings) {
	if !c.retries() {
		return
	}
	for _, m := range c.methods {
		p := namedPolicy{"WithServiceConfig", m.policy()}
		for _, name := range m.names {
			switch {
			case name.Method != "":
				s.methods[name.String()] = p
			case name.Service != "":
				s.services[name.Service] = p
			default:
				s.policy = p
			}
		}
	}
}

// limit sets the timeouts of a config where policies have none. gRPC must not have
// them: for it each attempt would be a call.
func (c *serviceConfig) limit(p *policies) {
	if c == nil {
		return
	}
	limited := func(name string, r *rule) *rule {
		m := c.find(name)
		if m == nil || m.timeout == nil || *m.timeout <= 0 || r.Timeout > 0 {
			return r
		}
		policy := r.Policy
		policy.Timeout = time.Duration(*m.timeout)
		return newRule(r.origin, policy)
	}
	found := &policies{fallback: p.fallback, services: p.services, methods: p.methods} // as they were
	p.methods, p.services = maps.Clone(p.methods), maps.Clone(p.services)
	for _, m := range c.methods {
		for _, n := range m.names {
			switch name := n.String(); {
			case n.Method != "":
				p.methods[name] = found.find(name)
			case n.Service != "":
				p.services[name] = found.find(name + "/")
			}
		}
	}
	for _, rules := range []map[string]*rule{p.methods, p.services} {
		for name, r := range rules {
			rules[name] = limited(name, r)
		}
	}
	p.fallback = limited("", p.fallback)
}

// policy returns what an element means for calls that the suite retries.
func (m *methodConfig) policy() Policy {
	p := Policy{MaxAttempts: 1, Repeat: RepeatAlways}
	if m.timeout != nil && *m.timeout > 0 {
		p.Timeout = time.Duration(*m.timeout)
	}
	if r := m.retry; r != nil {
		p.MaxAttempts = min(r.MaxAttempts, maxNativeAttempts)
		p.Codes = make([]codes.Code, len(r.RetryableStatusCodes))
		for i, code := range r.RetryableStatusCodes {
			p.Codes[i] = codes.Code(code)
		}
		// gRPC takes OK, without effect.
		p.Codes = slices.DeleteFunc(p.Codes, func(c codes.Code) bool { return c == codes.OK })
		p.Backoff = Backoff{
			Initial:    time.Duration(min(r.InitialBackoff, r.MaxBackoff)),
			Max:        time.Duration(r.MaxBackoff),
			Multiplier: float64(r.BackoffMultiplier),
		}
	}
	return p
}

// String returns the config as JSON, in a form that gRPC in all languages takes.
func (c *serviceConfig) String() string {
	whole := maps.Clone(c.rest)
	if whole == nil {
		whole = map[string]json.RawMessage{}
	}
	if len(c.methods) > 0 {
		elements := make([]map[string]json.RawMessage, len(c.methods))
		for i, m := range c.methods {
			elements[i] = m.fields()
		}
		whole["methodConfig"] = mustMarshal(elements)
	}
	if c.throttling != nil {
		whole["retryThrottling"] = mustMarshal(c.throttling)
	}
	return string(mustMarshal(whole))
}

func (m *methodConfig) fields() map[string]json.RawMessage {
	all := maps.Clone(m.rest)
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	all["name"] = mustMarshal(m.names)
	if m.timeout != nil {
		all["timeout"] = mustMarshal(m.timeout)
	}
	if m.retry != nil {
		all["retryPolicy"] = mustMarshal(m.retry)
	}
	return all
}

// mustMarshal marshals what can always be: our own types, and JSON that was parsed.
func mustMarshal(v any) json.RawMessage {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return json.RawMessage("null")
	}
	return bytes.TrimSpace(b.Bytes())
}

// jsonDuration is a duration as protobuf writes it in JSON, like "0.25s".
type jsonDuration time.Duration

// MarshalJSON implements [json.Marshaler].
func (d jsonDuration) MarshalJSON() ([]byte, error) {
	text := fmt.Sprintf("%d.%09d", d/jsonDuration(time.Second), d%jsonDuration(time.Second))
	text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	return []byte(`"` + text + `s"`), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (d *jsonDuration) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	number, seconds := strings.CutSuffix(text, "s")
	number, negative := strings.CutPrefix(number, "-")
	whole, fraction, _ := strings.Cut(number, ".")
	if !seconds || whole+fraction == "" || len(fraction) > 9 || strings.Trim(whole+fraction, "0123456789") != "" {
		return fmt.Errorf("%q is no duration; write seconds with at most nine decimals, like \"0.25s\"", text)
	}
	s, err := strconv.ParseInt("0"+whole, 10, 64)
	const longest = math.MaxInt64 / int64(time.Second) // about 292 years
	if err != nil || s >= longest {
		s, fraction = longest-1, "0"
	}
	nanos, err := strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
	if err != nil {
		return fmt.Errorf("%q is no duration: %w", text, err)
	}
	*d = jsonDuration(s*int64(time.Second) + nanos)
	if negative {
		*d = -*d
	}
	return nil
}

// jsonNumber is a number that is written without an exponent: not all of gRPC's
// implementations read one.
type jsonNumber float64

// MarshalJSON implements [json.Marshaler].
func (n jsonNumber) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(n), 'f', -1, 64), nil
}

// jsonCode is a status code, which is written in capitals.
type jsonCode codes.Code

// MarshalJSON implements [json.Marshaler].
func (c jsonCode) MarshalJSON() ([]byte, error) {
	return json.Marshal(codeName(codes.Code(c)))
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *jsonCode) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, (*codes.Code)(c))
}

// codeName returns the name of a status code in gRPC's specification.
func codeName(c codes.Code) string {
	if c == codes.Canceled {
		return "CANCELLED" // sic
	}
	var b strings.Builder
	for i, r := range c.String() {
		if i > 0 && 'A' <= r && r <= 'Z' && c != codes.OK {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}

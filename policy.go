// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Defaults of [Policy].
const (
	defaultMaxAttempts    = 3
	defaultMaxServerDelay = time.Minute
	defaultConnectWait    = 20 * time.Second
)

// Repeat says whether a call that may have run may be run again.
type Repeat int

const (
	// RepeatIfIdempotent repeats a call if its method is declared with an
	// idempotency_level of NO_SIDE_EFFECTS or IDEMPOTENT in a .proto file whose
	// generated code is linked into the program.
	RepeatIfIdempotent Repeat = iota
	// RepeatAlways repeats any call: whoever sets it knows the methods.
	RepeatAlways
	// RepeatNever repeats no call.
	RepeatNever
)

// String returns the name of the constant.
func (r Repeat) String() string {
	switch r {
	case RepeatIfIdempotent:
		return "RepeatIfIdempotent"
	case RepeatAlways:
		return "RepeatAlways"
	case RepeatNever:
		return "RepeatNever"
	default:
		return "Repeat(" + strconv.Itoa(int(r)) + ")"
	}
}

// Policy says which failures of a method are retried, how often, and when. It is
// plain data: a zero field means its default, and the zero Policy is a useful one.
type Policy struct {
	// MaxAttempts is the largest number of attempts, the first included; of a stream
	// in all its life, unless ResetAfter says otherwise. Zero means 3. With 1 there is no
	// retry, but everything else still applies.
	MaxAttempts int

	// Codes are the status codes to retry. Nil means UNAVAILABLE; empty and not
	// nil means none. Two failures need no code: an attempt that never left the
	// client, and one that ran into AttemptTimeout.
	Codes []codes.Code

	// Backoff is the wait between attempts where the server does not set it.
	Backoff Backoff

	// Repeat says whether a call that may have run may be run again. Whatever it
	// says, a call is retried that has provably not run: one that never left the
	// client or was refused unprocessed, and one whose failing server asks for
	// a retry with grpc-retry-pushback-ms or google.rpc.RetryInfo, unless its caller
	// has had a response. Zero means RepeatIfIdempotent.
	//
	// A retry that RepeatIfIdempotent alone forbids fails with [ErrNotRepeatable].
	Repeat Repeat

	// Timeout bounds the whole call, attempts and waits. Its end counts as the
	// caller's own deadline; the sooner of the two applies. Zero means none. (The
	// timeout of a service config bounds each attempt.)
	Timeout time.Duration

	// AttemptTimeout bounds each attempt, the first included: a unary one to its
	// end, which the server sees as the attempt's deadline; that of a stream to its
	// first response, which the server does not see. An attempt that runs into it is
	// retried without regard to Codes, if the call may be repeated. Zero means none.
	AttemptTimeout time.Duration

	// IdleTimeout bounds how long one RecvMsg of a stream may block after the
	// stream's first response. The attempt then fails with DEADLINE_EXCEEDED, and the
	// call with it unless it has a Recovery, for which Codes do not matter. The server
	// must say something that often, or else a stream that is well fails too. Zero
	// means no bound.
	IdleTimeout time.Duration

	// ConnectWait is how long, before each retry of an attempt that never left the
	// client and after the backoff, the call waits for its connection to become
	// ready, so that no attempt is spent while gRPC is not even dialling.
	// AttemptTimeout shortens it. When it has passed, the attempt is made all the
	// same. Where the deadline of the call comes first, the call ends with that,
	// and with the failure to connect in its error. Zero means 20 s; a negative
	// value means no such wait: a call to a server that is away fails sooner, but
	// one to a server that restarts fails too.
	ConnectWait time.Duration

	// MaxConnect, MaxLost and MaxAnswered end the call at its n-th failure of the
	// one Kind, even if attempts are left: a server that answers may deserve more
	// of them than one that is not there. The status of a stream that had a response is
	// mostly Lost, see [Kind]. Zero means no limit of its own.
	MaxConnect, MaxLost, MaxAnswered int

	// MaxServerDelay is the longest wait that a server may ask for; if it asks
	// for a longer one, the call fails at once. Zero means one minute.
	MaxServerDelay time.Duration

	// Retryable, if set, decides in place of Codes, whose verdict it finds in
	// Failure.Listed. It decides nothing else: all limits and Repeat still apply.
	// It must be safe for concurrent use.
	Retryable func(Failure) bool

	// ResetAfter says when a stream that was recovered has all its attempts again. The
	// zero value means never: MaxAttempts are those of the stream's whole life.
	ResetAfter ResetAfter

	// Recovery says how a stream goes on when it fails after its first response. The
	// zero value commits it to that. Unary calls have none, and a stream of a kind that
	// the Recovery is not for fails before its first attempt, with INTERNAL.
	Recovery Recovery

	// Check, if set, looks at each reply of a unary call that came with OK. If it
	// returns an error, the attempt has failed with that error's status, or UNKNOWN,
	// as if the code were listed; the reply is reset. It must be safe for concurrent
	// use.
	Check func(reply any) error
}

func (p Policy) withDefaults() Policy {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = defaultMaxAttempts
	}
	if p.Codes == nil {
		p.Codes = []codes.Code{codes.Unavailable}
	} else {
		p.Codes = append([]codes.Code{}, p.Codes...) // ours from now on, and still not nil
	}
	if p.ConnectWait == 0 {
		p.ConnectWait = defaultConnectWait
	}
	if p.MaxServerDelay == 0 {
		p.MaxServerDelay = defaultMaxServerDelay
	}
	p.Backoff = p.Backoff.withDefaults()
	return p
}

// problems lists every field that cannot be used, with its value.
func (p Policy) problems() []error {
	var problems []error
	for _, field := range []struct {
		name  string
		value int
	}{
		{"MaxAttempts", p.MaxAttempts},
		{"MaxConnect", p.MaxConnect},
		{"MaxLost", p.MaxLost},
		{"MaxAnswered", p.MaxAnswered},
		{"ResetAfter.Responses", p.ResetAfter.Responses},
	} {
		if field.value < 0 {
			problems = append(problems, invalid(field.name, field.value, "must not be negative"))
		}
	}
	for i, code := range p.Codes {
		if code == codes.OK || code > codes.Unauthenticated {
			problems = append(problems, invalid(fmt.Sprintf("Codes[%d]", i), code, "must be a code from 1 to 16"))
		}
	}
	if p.Repeat < RepeatIfIdempotent || p.Repeat > RepeatNever {
		problems = append(problems, invalid("Repeat", p.Repeat, "must be one of the constants"))
	}
	for _, field := range []struct {
		name  string
		value time.Duration
	}{
		{"Timeout", p.Timeout},
		{"AttemptTimeout", p.AttemptTimeout},
		{"IdleTimeout", p.IdleTimeout},
		{"MaxServerDelay", p.MaxServerDelay},
		{"ResetAfter.Quiet", p.ResetAfter.Quiet},
	} {
		if field.value < 0 {
			problems = append(problems, invalid(field.name, field.value, "must not be negative"))
		}
	}
	if problem := p.recoveryProblem(); problem != nil {
		problems = append(problems, problem)
	}
	return append(problems, p.Backoff.problems()...)
}

// recoveryProblem returns why the Recovery cannot be used; nil if it can.
func (p Policy) recoveryProblem() error {
	if p.Recovery.mode != commits && p.Repeat == RepeatNever {
		return fmt.Errorf("Recovery is %v and Repeat is RepeatNever; what is recovered is repeated", p.Recovery)
	}
	return p.Recovery.problem()
}

// invalid is the problem of a field.
func invalid(field string, value any, rule string) error {
	return fmt.Errorf("%s is %v; it %s", field, value, rule)
}

// rule is a Policy made ready: defaults filled in, and worked out once what every
// call asks of it.
type rule struct {
	Policy

	origin string         // " in WithPolicy", for errors
	codes  uint32         // a bit for each of Policy.Codes
	limits [Local + 1]int // by Kind, how many failures end the call
	plain  bool           // an attempt of the rule is nothing but a call of the invoker
	native bool           // gRPC retries, not the suite
	own    bool           // it is one call's

	recovery string // the option that the Recovery is from, if not from the policy
}

func newRule(origin string, policy Policy) *rule {
	p := &rule{Policy: policy.withDefaults(), origin: origin}
	for _, code := range p.Codes {
		p.codes |= 1 << code
	}
	p.limits = [Local + 1]int{Connect: p.MaxConnect, Lost: p.MaxLost, Answered: p.MaxAnswered}
	for kind, limit := range p.limits {
		if limit == 0 {
			p.limits[kind] = math.MaxInt
		}
	}
	p.plain = p.Timeout == 0 && p.AttemptTimeout == 0 && p.Check == nil
	return p
}

// timed tells whether attempts of streams have a timeout of the policy's.
func (p *rule) timed() bool { return p.AttemptTimeout > 0 || p.IdleTimeout > 0 }

// recovering returns the rule with another Recovery, that of WithRecovery.
func (p *rule) recovering(r Recovery) *rule {
	own := *p
	own.Recovery, own.recovery = r, "WithRecovery"
	return &own
}

// recovers returns why the rule's Recovery cannot be that of a stream; nil if it can.
func (p *rule) recovers(method string, desc *grpc.StreamDesc) error {
	if p.Recovery.mode == commits {
		return nil
	}
	problem := p.recoveryProblem()
	if problem == nil {
		problem = p.Recovery.suits(strings.TrimPrefix(method, "/"), desc.ClientStreams, desc.ServerStreams)
	}
	if problem == nil {
		return nil
	}
	origin := p.recovery
	if origin == "" {
		origin = "the policy" + p.origin
	}
	return status.Errorf(codes.Internal, "grpcretry: %s: %v", origin, problem)
}

func (p *rule) lists(code codes.Code) bool {
	return code < 32 && p.codes&(1<<code) != 0
}

// mayRepeat says whether a call of the method that may have run may be run again;
// if not, why says what to do about it.
func (p *rule) mayRepeat(method string) (ok bool, why string) {
	switch p.Repeat {
	case RepeatAlways:
		return true, ""
	case RepeatNever:
		return false, "Policy.Repeat is RepeatNever"
	case RepeatIfIdempotent:
	}
	name := strings.TrimPrefix(method, "/")
	descriptor := linkedMethod(name)
	if descriptor == nil {
		return false, name + " is not linked, its idempotency_level unknown; set Policy.Repeat" + p.origin
	}
	if !idempotent(descriptor) {
		return false, name + " has no idempotency_level; set Policy.Repeat" + p.origin
	}
	return true, ""
}

func idempotent(method protoreflect.MethodDescriptor) bool {
	options, _ := method.Options().(*descriptorpb.MethodOptions)
	return options.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN
}

// linkedMethod finds the descriptor of "pkg.Service/Method"; nil if no generated
// code for it is linked into the program.
func linkedMethod(name string) protoreflect.MethodDescriptor {
	service, method, _ := strings.Cut(name, "/")
	descriptor, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if found, ok := descriptor.(protoreflect.ServiceDescriptor); ok {
		return found.Methods().ByName(protoreflect.Name(method))
	}
	return nil
}

// policies says which rule a method gets.
type policies struct {
	fallback *rule
	services map[string]*rule // by "pkg.Service"
	methods  map[string]*rule // by "pkg.Service/Method"

	// unrepeatable remembers of methods whether they have no idempotency_level, so
	// that calls need not ask their descriptors. It is replaced, never changed.
	unrepeatable atomic.Pointer[map[string]bool]
}

// maxRemembered bounds the methods that policies remember: a proxy may pass on
// any name.
const maxRemembered = 512

// find returns the rule of a full method name. The exact name beats the service,
// which beats the default; nothing is merged.
func (p *policies) find(method string) *rule {
	if len(p.methods)+len(p.services) == 0 {
		return p.fallback
	}
	name := strings.TrimPrefix(method, "/")
	if r, ok := p.methods[name]; ok {
		return r
	}
	if slash := strings.LastIndexByte(name, '/'); slash >= 0 {
		name = name[:slash]
	}
	if r, ok := p.services[name]; ok {
		return r
	}
	return p.fallback
}

// guards tells whether a call under the rule must not be repeated without proof
// that it did not run.
func (p *policies) guards(r *rule, method string) bool {
	if r.Repeat != RepeatIfIdempotent {
		return r.Repeat == RepeatNever
	}
	known := p.unrepeatable.Load()
	if known == nil {
		known = &map[string]bool{}
	}
	guarded, ok := (*known)[method]
	if !ok {
		repeatable, _ := r.mayRepeat(method)
		guarded = !repeatable
		if len(*known) < maxRemembered {
			more := maps.Clone(*known)
			more[strings.Clone(method)] = guarded
			p.unrepeatable.Store(&more) // of two at a time one is lost, and made again
		}
	}
	return guarded
}

// checkName returns the canonical form of "pkg.Service", "pkg.Service/Method" or
// "/pkg.Service/Method". What is linked of it must exist.
func checkName(name string) (string, error) {
	canonical := strings.TrimPrefix(name, "/")
	service, method, exact := strings.Cut(canonical, "/")
	full := protoreflect.FullName(service)
	switch {
	case !exact && canonical != name:
		return "", errors.New("a service has no slash in front")
	case exact && method == "":
		return "", errors.New("a service has no slash behind")
	case !full.IsValid() || exact && !protoreflect.Name(method).IsValid():
		return "", errors.New("it must have the form pkg.Service/Method or pkg.Service")
	case protoregistry.GlobalFiles.NumFilesByPackage(full) > 0:
		return "", fmt.Errorf("%s is a package", service)
	}
	descriptor, _ := protoregistry.GlobalFiles.FindDescriptorByName(full)
	if descriptor == nil {
		return canonical, nil // not linked: nothing to hold the name against
	}
	found, ok := descriptor.(protoreflect.ServiceDescriptor)
	if !ok {
		return "", fmt.Errorf("%s is not a service", service)
	}
	if !exact {
		return canonical, nil
	}
	if found.Methods().ByName(protoreflect.Name(method)) == nil {
		return "", fmt.Errorf("%s has no such method; it has %s", service, methodNames(found))
	}
	return canonical, nil
}

func methodNames(service protoreflect.ServiceDescriptor) string {
	names := make([]string, service.Methods().Len())
	for i := range names {
		names[i] = string(service.Methods().Get(i).Name())
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

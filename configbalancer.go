// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"encoding/json"
	"strings"

	"google.golang.org/grpc/balancer"
)

// pickFirst is the balancer that gRPC uses where none is asked for.
const pickFirst = "pick_first"

// balancer checks loadBalancingConfig, or what stands in for it.
func (c *configCheck) balancer(fields map[string]place) {
	policy, hasPolicy := c.optional(fields, "loadBalancingPolicy")
	name := ""
	if hasPolicy {
		name, hasPolicy = c.word(policy)
	}
	config, hasConfig := c.optional(fields, "loadBalancingConfig")
	switch {
	case hasConfig && hasPolicy:
		c.warn(policy, "loadBalancingConfig is there too, and gRPC goes by that", "leave it out")
		c.balancers(config)
	case hasConfig:
		c.balancers(config)
	case hasPolicy:
		c.namedBalancer(policy, name)
	default:
		c.pickFirst = true
	}
}

// namedBalancer checks loadBalancingPolicy, whose balancer gets an empty config.
func (c *configCheck) namedBalancer(at place, name string) {
	builder := balancer.Get(name)
	if builder == nil {
		c.pickFirst = true
		c.warn(at, "no balancer of this name is linked into the program, and gRPC takes pick_first",
			"link it, or write one that is")
		return
	}
	c.pickFirst = strings.EqualFold(name, pickFirst)
	if parser, ok := builder.(balancer.ConfigParser); ok {
		if _, err := parser.ParseConfig(json.RawMessage("{}")); err != nil {
			c.refuse(at, "the balancer needs a config: "+shorten(err.Error(), 2*maxExcerpt), "write a loadBalancingConfig")
		}
	}
}

// balancers checks loadBalancingConfig: a list of balancers with their configs, of
// which gRPC takes the first that is linked, and looks no further.
func (c *configCheck) balancers(at place) {
	const form = `write [{"round_robin": {}}]`
	if !at.array() {
		c.refuse(at, "it must be an array", form)
		return
	}
	chosen, malformed := false, false
	for _, entry := range at.elements() {
		if c.full() {
			return
		}
		if !entry.object() && !entry.null() {
			malformed = true
			c.refuse(entry, "it must be an object", form)
			continue
		}
		name, config, ok := onlyMember(entry)
		switch {
		case !ok:
			malformed = malformed || !chosen
			c.note(entry, !chosen, "it must be an object with one key, the balancer's name", form)
		case chosen: // for programs that have other balancers
		case balancer.Get(name) == nil:
			c.warn(config, "no balancer of this name is linked into the program, and gRPC goes on to the next",
				"link it, or leave it out")
		default:
			chosen = true
			c.balancerConfig(config, name)
		}
	}
	if !chosen && !malformed {
		c.refuse(at, "no balancer in it is linked into the program", form)
	}
}

// onlyMember returns the member of an object that has one; of two of one name the last.
func onlyMember(at place) (name string, config place, ok bool) {
	if !at.object() {
		return "", place{}, false
	}
	for key, value := range at.members() {
		if ok && key != name {
			return "", place{}, false
		}
		name, config, ok = key, value, true
	}
	return name, config, ok
}

// balancerConfig checks the config of a balancer that is linked.
func (c *configCheck) balancerConfig(at place, name string) {
	c.pickFirst = strings.EqualFold(name, pickFirst)
	parser, ok := balancer.Get(name).(balancer.ConfigParser)
	if !ok {
		if !emptyObject(at) {
			c.warn(at, "this balancer takes no config, and gRPC ignores it", "write {}")
		}
		return
	}
	if _, err := parser.ParseConfig(json.RawMessage(at.text)); err != nil {
		c.refuse(at, "the balancer refuses its config: "+shorten(err.Error(), 2*maxExcerpt), "")
	}
}

func emptyObject(at place) bool {
	if !at.object() {
		return at.null()
	}
	for range at.members() {
		return false
	}
	return true
}

// health checks healthCheckConfig.
func (c *configCheck) health(at place) {
	fields, ok := c.object(at, healthLevel)
	if !ok {
		return
	}
	if c.pickFirst {
		c.warn(at, "the balancer pick_first does not look at the health of servers",
			"choose another balancer, like round_robin, or leave it out")
	}
	service, ok := c.optional(fields, "serviceName")
	name := ""
	if ok {
		if name, ok = c.word(service); !ok {
			return
		}
	} else {
		service = at.absent("serviceName")
	}
	if name == "" {
		c.warn(service, "without a service grpc-go asks for the health of the whole server; other languages do not ask",
			"name the service to ask for")
	}
}

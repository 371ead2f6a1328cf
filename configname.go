// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// maxLinkedName bounds the names that are looked up, which takes the square of their
// length: none that is linked is longer.
const maxLinkedName = 1000

// configNames is what is known of the names in a config, and of those that are linked.
type configNames struct {
	taken   map[string]int    // by the path that gRPC looks for: the offset of the first
	streams []streamedService // services whose policy may be one for their streams too
	linked  map[string]string // all linked services by their names in lower case, once asked for
}

// streamedService is a name for a whole service that has methods which stream requests.
type streamedService struct {
	at      place
	service protoreflect.ServiceDescriptor
}

// entryNames checks the name of an entry, which may have a retryPolicy.
func (c *configCheck) entryNames(at place, retried bool) {
	if !at.array() {
		c.refuse(at, "it must be an array", `write [{"service": "…"}], or [{}] for all methods`)
		return
	}
	empty := true
	for _, name := range at.elements() {
		if c.full() {
			return
		}
		empty = false
		c.name(name, retried)
	}
	if empty {
		c.warn(at, "an entry with an empty name applies to no method", "write [{}] for all methods")
	}
}

// name checks one name.
func (c *configCheck) name(at place, retried bool) {
	var fields map[string]place
	if at.null() {
		c.warn(at, "null is read as {}, which stands for all methods", "write {}, or leave it out")
	} else {
		var ok bool
		if fields, ok = c.object(at, nameLevel); !ok {
			return
		}
	}
	service, serviceOK := c.namePart(fields, "service")
	method, methodOK := c.namePart(fields, "method")
	if !serviceOK || !methodOK {
		return
	}
	if service == "" && method != "" {
		c.refuse(at, "a method needs its service", "add the service")
		return
	}
	path := ""
	if service != "" {
		path = "/" + service + "/" + method
	}
	if first, again := c.names.taken[path]; again {
		line := 1 + strings.Count(c.text[:first], "\n")
		c.refuse(at, fmt.Sprintf("there is an entry for the same name in line %d already", line), "leave one of them out")
		return
	}
	if c.names.taken == nil {
		c.names.taken = make(map[string]int)
	}
	c.names.taken[path] = at.offset
	if service != "" && len(service) <= maxLinkedName && c.shape(fields, service, method) {
		c.linkedName(at, fields, method, retried)
	}
}

// namePart returns the service or the method of a name, which may be left out.
func (c *configCheck) namePart(fields map[string]place, key string) (string, bool) {
	at, ok := c.optional(fields, key)
	if !ok {
		return "", true
	}
	return c.word(at)
}

// shape checks that a name could be that of a method at all.
func (c *configCheck) shape(fields map[string]place, service, method string) bool {
	at := fields["service"]
	bare, inner, slash := strings.Cut(strings.Trim(service, "/"), "/")
	switch {
	case slash:
		c.warn(at, "a service has no slash in it, so it never matches",
			fmt.Sprintf(`write "service": %q, "method": %q`, excerpt(bare), excerpt(inner)))
	case bare != service:
		c.warn(at, "a service has no slash in front or behind here, so it never matches",
			fmt.Sprintf("write %q", excerpt(bare)))
	case strings.Contains(method, "/"):
		c.warn(fields["method"], "a method has no slash in it, so it never matches",
			fmt.Sprintf("write %q", excerpt(method[strings.LastIndexByte(method, '/')+1:])))
	case strings.Contains(service, "*"):
		c.warn(at, "gRPC has no patterns, so it never matches", "leave out service and method for all methods")
	case strings.Contains(method, "*"):
		c.warn(fields["method"], "gRPC has no patterns, so it never matches", "leave out method for all of the service")
	case strings.TrimSpace(service) != service:
		c.warn(at, "there is space around the service, so it never matches",
			fmt.Sprintf("write %q", excerpt(strings.TrimSpace(service))))
	case strings.TrimSpace(method) != method:
		c.warn(fields["method"], "there is space around the method, so it never matches",
			fmt.Sprintf("write %q", excerpt(strings.TrimSpace(method))))
	default:
		return true
	}
	return false
}

// linkedName holds a name against the code that is linked. A service that is not, in a
// package of which nothing is, may well exist.
func (c *configCheck) linkedName(at place, fields map[string]place, method string, retried bool) {
	service := fields["service"].string()
	full := protoreflect.FullName(service)
	descriptor, _ := protoregistry.GlobalFiles.FindDescriptorByName(full)
	switch found := descriptor.(type) {
	case nil:
		c.unlinked(fields["service"], full)
	case protoreflect.ServiceDescriptor:
		c.linkedMethod(at, fields["method"], found, method, retried)
	case protoreflect.MethodDescriptor:
		c.warn(fields["service"], "this is a method, so it never matches as a service",
			fmt.Sprintf(`write "service": %q, "method": %q`, found.Parent().FullName(), found.Name()))
	default:
		c.warn(fields["service"], "what is linked of this name is no service, so it never matches", "write a service")
	}
}

// unlinked tells why a service cannot be there, if that is known.
func (c *configCheck) unlinked(at place, service protoreflect.FullName) {
	linked := c.linkedServices()
	if meant, ok := linked[strings.ToLower(string(service))]; ok {
		c.warn(at, "gRPC goes by letter case, so it never matches", fmt.Sprintf("write %q", meant))
		return
	}
	within := service
	if protoregistry.GlobalFiles.NumFilesByPackage(within) == 0 {
		within = service.Parent()
	}
	if within == "" || protoregistry.GlobalFiles.NumFilesByPackage(within) == 0 {
		return
	}
	var there []string
	for _, name := range linked {
		if protoreflect.FullName(name).Parent() == within {
			there = append(there, name)
		}
	}
	slices.Sort(there)
	remedy := "write a service"
	if len(there) > 0 {
		remedy = "write " + list(there, "or")
	}
	if meant := nearest(string(service), there); meant != "" {
		remedy = fmt.Sprintf("write %q", meant)
	}
	if within == service {
		c.warn(at, "this is a package, and gRPC matches services only", remedy)
		return
	}
	c.warn(at, fmt.Sprintf("the package %s is linked and has no such service", within), remedy)
}

// linkedServices are the full names of all linked services, by their lower case.
func (c *configCheck) linkedServices() map[string]string {
	if c.names.linked == nil {
		c.names.linked = make(map[string]string)
		protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
			for i := range file.Services().Len() {
				name := string(file.Services().Get(i).FullName())
				c.names.linked[strings.ToLower(name)] = name
			}
			return true
		})
	}
	return c.names.linked
}

// linkedMethod checks the method, if any, of a service that is linked.
func (c *configCheck) linkedMethod(
	at, methodAt place, service protoreflect.ServiceDescriptor, method string, retried bool,
) {
	if method == "" {
		if retried {
			c.names.streams = append(c.names.streams, streamedService{at, service})
		}
		return
	}
	if found := service.Methods().ByName(protoreflect.Name(method)); found != nil {
		if retried && found.IsStreamingClient() {
			c.warnStreams(at, method)
		}
		return
	}
	names := strings.Split(methodNames(service), ", ")
	remedy := "write " + list(names, "or")
	if meant := match(method, names); meant != "" {
		c.warn(methodAt, "gRPC goes by letter case, so it never matches", fmt.Sprintf("write %q", meant))
		return
	}
	if meant := nearest(method, names); meant != "" {
		remedy = fmt.Sprintf("write %q", meant)
	}
	c.warn(methodAt, fmt.Sprintf("%s has no such method, so it never matches", service.FullName()), remedy)
}

// serviceStreams checks the policies of services for methods that stream requests and
// have no entry of their own, which is known only when all entries were read.
func (c *configCheck) serviceStreams() {
	for _, s := range c.names.streams {
		var streams []string
		for i := range s.service.Methods().Len() {
			method := s.service.Methods().Get(i)
			_, own := c.names.taken["/"+string(s.service.FullName())+"/"+string(method.Name())]
			if method.IsStreamingClient() && !own {
				streams = append(streams, string(method.Name()))
			}
		}
		if len(streams) > 0 {
			c.warnStreams(s.at, list(streams, "and"))
		}
	}
}

// warnStreams tells of gRPC's own replay of what a client streams.
func (c *configCheck) warnStreams(at place, methods string) {
	c.warn(at, "retryPolicy applies to streams of requests ("+methods+
		"), and gRPC's own replay of them can deadlock, or report a failure as success",
		"give them an entry without retryPolicy, and leave retries to a Retrier")
}

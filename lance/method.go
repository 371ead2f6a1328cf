// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package lance

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// kinds tell reads from writes, by "pkg.Service/Method" or "pkg.Service".
type kinds map[string]bool // true for reads

// declaredReads are the linked methods that are declared with an idempotency_level:
// what they do twice is the same as once.
func declaredReads() kinds {
	reads := kinds{}
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				method := methods.Get(j)
				options, _ := method.Options().(*descriptorpb.MethodOptions)
				if options.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN {
					reads[string(method.Parent().FullName())+"/"+string(method.Name())] = true
				}
			}
		}
		return true
	})
	return reads
}

// reads tells whether a method, "/pkg.Service/Method", is a read. What was said of the
// method beats what was said of its service, which beats how it is declared.
func (s *suite) reads(method string) bool {
	name := strings.TrimPrefix(method, "/")
	if read, said := s.named[name]; said {
		return read
	}
	if service, _, found := strings.Cut(name, "/"); found {
		if read, said := s.named[service]; said {
			return read
		}
	}
	return s.declared[name]
}

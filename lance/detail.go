// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package lance

import (
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// How far the details of a status are looked into, which are from outside.
const (
	deepestDetail   = 10
	mostDetails     = 1000      // strings
	mostDetailBytes = 256 << 10 // of them
)

// detailTexts returns the strings in the details of a status, as far as they are looked
// into, and whether there is more.
func detailTexts(s *status.Status) (all []string, more bool) {
	var d details
	for _, detail := range s.Proto().GetDetails() {
		d.message(detail.ProtoReflect(), 0)
	}
	return d.texts, d.more
}

// details gathers strings.
type details struct {
	texts []string
	bytes int
	more  bool // than was looked into
}

// full tells whether nothing more is looked into. It is asked before something is.
func (d *details) full() bool {
	full := len(d.texts) >= mostDetails || d.bytes >= mostDetailBytes
	d.more = d.more || full
	return full
}

// message gathers the strings in a message, and in the messages within it.
func (d *details) message(m protoreflect.Message, depth int) {
	if depth > deepestDetail || d.full() {
		d.more = true
		return
	}
	if packed, ok := m.Interface().(*anypb.Any); ok {
		if inner, err := packed.UnmarshalNew(); err == nil { // else of a type that is not linked
			d.message(inner.ProtoReflect(), depth+1)
		}
		return
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap():
			v.Map().Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
				d.value(field.MapKey().Kind(), key.Value(), depth)
				d.value(field.MapValue().Kind(), v, depth)
				return !d.full()
			})
		case field.IsList():
			for i := 0; i < v.List().Len() && !d.full(); i++ {
				d.value(field.Kind(), v.List().Get(i), depth)
			}
		default:
			d.value(field.Kind(), v, depth)
		}
		return !d.full()
	})
}

func (d *details) value(kind protoreflect.Kind, v protoreflect.Value, depth int) {
	switch kind {
	case protoreflect.StringKind:
		d.texts = append(d.texts, v.String())
		d.bytes += len(v.String())
	case protoreflect.MessageKind, protoreflect.GroupKind:
		d.message(v.Message(), depth+1)
	default:
	}
}

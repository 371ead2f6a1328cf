// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import "maps"

// entryOverhead is what a message of a Queue takes beside itself and its key: its
// entry, and its place among the keys.
const entryOverhead = 128

// keptEntries is for how many messages a Queue keeps the memory of those that were
// removed.
const keptEntries = 64

// Queue is a list of messages that grows at its end, from which they are removed by
// their keys, in any order. Those without a key stay. It is read from its beginning,
// again and again. All its methods are for one goroutine at a time.
type Queue struct {
	allowance *Allowance
	used      int64
	length    int
	byKey     map[string]*entry
	most      int // entries that byKey has had
	root      entry
	next      *entry // that is read next; the root at the end
	spare     *entry
	spares    int
}

// entry is a message of a Queue.
type entry struct {
	message        any
	key            string
	size           int64
	place          int // among all messages ever added
	previous, next *entry
}

// NewQueue returns a queue that takes its memory from the allowance.
func NewQueue(allowance *Allowance) *Queue {
	q := &Queue{allowance: allowance, byKey: map[string]*entry{}}
	q.root.previous, q.root.next = &q.root, &q.root
	q.next = &q.root
	return q
}

// Len returns how many messages there are.
func (q *Queue) Len() int { return q.length }

// Keys returns how many of them have a key.
func (q *Queue) Keys() int { return len(q.byKey) }

// First returns the key of the first message that has one; "" if none has.
func (q *Queue) First() string {
	e := q.root.next
	for e.key == "" && e != &q.root {
		e = e.next
	}
	return e.key
}

// Has tells whether there is a message with a key.
func (q *Queue) Has(key string) bool {
	_, has := q.byKey[key]
	return has
}

// Reserve takes the memory of a message of a size that is to be added; false if there
// is none left.
func (q *Queue) Reserve(key string, size int64) bool {
	size += int64(len(key)) + entryOverhead
	if q.byKey == nil || !q.allowance.reserve(size) {
		return false
	}
	q.used += size
	return true
}

// Add adds a message whose memory was reserved with the same key and size, and which
// is the place-th of all that were ever added. There must be none with its key; many may
// have none.
func (q *Queue) Add(place int, key string, size int64, m any) {
	e := q.spare
	if e == nil {
		e = &entry{}
	} else {
		q.spare = e.next
		q.spares--
	}
	*e = entry{message: m, key: key, size: size, place: place, previous: q.root.previous, next: &q.root}
	e.previous.next, q.root.previous = e, e
	if q.next == &q.root {
		q.next = e
	}
	q.length++
	if key == "" {
		return
	}
	q.byKey[key] = e
	q.most = max(q.most, len(q.byKey))
}

// Remove removes the message with a key, and tells whether there was one.
func (q *Queue) Remove(key string) bool {
	e, has := q.byKey[key]
	if !has {
		return false
	}
	q.length--
	delete(q.byKey, key)
	q.Unreserve(key, e.size)
	if q.next == e {
		q.next = e.next
	}
	e.previous.next, e.next.previous = e.next, e.previous
	*e = entry{}
	if q.spares < keptEntries {
		e.next, q.spare = q.spare, e
		q.spares++
	}
	if q.most > keptEntries && len(q.byKey) <= q.most/8 { // for a map never shrinks
		q.most = len(q.byKey)
		shrunk := make(map[string]*entry, q.most)
		maps.Copy(shrunk, q.byKey)
		q.byKey = shrunk
	}
	return true
}

// Unreserve gives back what Reserve took.
func (q *Queue) Unreserve(key string, size int64) {
	size += int64(len(key)) + entryOverhead
	q.used -= size
	q.allowance.release(size)
}

// Rewind makes Read begin anew.
func (q *Queue) Rewind() { q.next = q.root.next }

// Read returns the next message since the last Rewind, and the place that follows it;
// false if there is none now. What is added meanwhile is read too, what is removed is not.
func (q *Queue) Read() (m any, behind int, ok bool) {
	if q.next == &q.root {
		return nil, 0, false
	}
	e := q.next
	q.next = e.next
	return e.message, e.place + 1, true
}

// Free gives all memory back and forgets the messages. Nothing fits from then on.
func (q *Queue) Free() {
	q.allowance.release(q.used)
	*q = Queue{allowance: q.allowance}
	q.root.previous, q.root.next = &q.root, &q.root
	q.next = &q.root
}

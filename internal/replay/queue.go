// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package replay

// entryOverhead is what a message of a Queue takes beside itself and its key: its
// entry, and its place among the keys.
const entryOverhead = 128

// keptEntries is for how many messages a Queue keeps the memory of those that were
// removed.
const keptEntries = 64

// Queue is a list of messages that grows at its end, from which they are removed by
// their keys, in any order. It is read from its beginning, again and again. All its
// methods, and Reader.Follow, are for one goroutine at a time.
type Queue struct {
	allowance *Allowance
	used      int64
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
func (q *Queue) Len() int { return len(q.byKey) }

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
// is the place-th of all that were ever added. There must be none with its key.
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
	q.byKey[key] = e
	q.most = max(q.most, len(q.byKey))
}

// Remove removes the message with a key, if there is one.
func (q *Queue) Remove(key string) {
	e, has := q.byKey[key]
	if !has {
		return
	}
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
	if q.most > keptEntries && len(q.byKey) == 0 { // for a map never shrinks
		q.byKey, q.most = map[string]*entry{}, 0
	}
}

// Unreserve gives back what Reserve took.
func (q *Queue) Unreserve(key string, size int64) {
	size += int64(len(key)) + entryOverhead
	q.used -= size
	q.allowance.release(size)
}

// Rewind makes Readers begin anew. What is added meanwhile is read too.
func (q *Queue) Rewind() { q.next = q.root.next }

// Free gives all memory back and forgets the messages. Nothing fits from then on.
func (q *Queue) Free() {
	q.allowance.release(q.used)
	*q = Queue{allowance: q.allowance}
	q.root.previous, q.root.next = &q.root, &q.root
	q.next = &q.root
}

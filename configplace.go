// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"encoding/json"
	"iter"
	"strconv"
	"strings"
)

// place is a value in the text of a service config, which is known to be JSON.
type place struct {
	path   string
	text   string // the value's JSON, without space around it
	offset int    // of text in the whole
}

func (p place) null() bool   { return p.text == "null" }
func (p place) object() bool { return strings.HasPrefix(p.text, "{") }
func (p place) array() bool  { return strings.HasPrefix(p.text, "[") }
func (p place) quoted() bool { return strings.HasPrefix(p.text, `"`) }

// number says whether the value is a number: nothing else begins like one.
func (p place) number() bool {
	return p.text != "" && (p.text[0] == '-' || '0' <= p.text[0] && p.text[0] <= '9')
}

// string returns what a string says, as encoding/json reads it.
func (p place) string() string {
	var s string
	if json.Unmarshal([]byte(p.text), &s) != nil {
		return ""
	}
	return s
}

// absent is the place of a field that the object does not have.
func (p place) absent(key string) place {
	return place{path: p.path + "." + key, offset: p.offset}
}

// members returns the keys of an object and the places of their values.
func (p place) members() iter.Seq2[string, place] {
	return func(yield func(string, place) bool) {
		var raw json.RawMessage // one buffer for all
		decoder := json.NewDecoder(strings.NewReader(p.text))
		if _, err := decoder.Token(); err != nil {
			return
		}
		for decoder.More() {
			token, err := decoder.Token()
			key, ok := token.(string)
			if err != nil || !ok || decoder.Decode(&raw) != nil {
				return
			}
			if !yield(key, p.inner(joinPath(p.path, key), int(decoder.InputOffset()), len(raw))) {
				return
			}
		}
	}
}

// elements returns the places of an array's elements.
func (p place) elements() iter.Seq2[int, place] {
	return func(yield func(int, place) bool) {
		var raw json.RawMessage // one buffer for all
		decoder := json.NewDecoder(strings.NewReader(p.text))
		if _, err := decoder.Token(); err != nil {
			return
		}
		for i := 0; decoder.More(); i++ {
			if decoder.Decode(&raw) != nil {
				return
			}
			path := p.path + "[" + strconv.Itoa(i) + "]"
			if !yield(i, p.inner(path, int(decoder.InputOffset()), len(raw))) {
				return
			}
		}
	}
}

// inner is the place of the size bytes that end at an offset of the value.
func (p place) inner(path string, end, size int) place {
	return place{path: path, text: p.text[end-size : end], offset: p.offset + end - size}
}

// joinPath appends a key to a path; one that would be misread there is quoted.
func joinPath(path, key string) string {
	plain := func(r rune) bool {
		return r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if key == "" || len(key) > maxExcerpt || strings.Trim(key, "-_") == "" ||
		strings.ContainsFunc(key, func(r rune) bool { return !plain(r) }) {
		return path + "[" + strconv.Quote(excerpt(key)) + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

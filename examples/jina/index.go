// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"strings"
	"sync"
	"unicode"

	"github.com/seed98143e88/grpcretry/jina"
	"github.com/seed98143e88/grpcretry/jina/jinatest"
)

// noText is what the indexer raises of a file without content.
const noText = "ValueError"

// index is the executor's: it outlives the gateway's deaths, and is asked by requests that
// come more than once, side by side.
type index struct {
	mu    sync.Mutex
	files map[string]map[string]int // words and how often they occur, by id
	words map[string]map[string]int // ids and how often the word occurs there, by word
}

func newIndex() *index {
	return &index{files: map[string]map[string]int{}, words: map[string]map[string]int{}}
}

// occurrences counts the words of a text.
func occurrences(text string) map[string]int {
	counts := map[string]int{}
	for _, word := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r)
	}) {
		counts[word]++
	}
	return counts
}

// put indexes a file. One that is there already is replaced, so that it does not matter
// how often it comes.
func (x *index) put(id, text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for word := range x.files[id] {
		delete(x.words[word], id)
	}
	x.files[id] = occurrences(text)
	for word, count := range x.files[id] {
		if x.words[word] == nil {
			x.words[word] = map[string]int{}
		}
		x.words[word][id] = count
	}
}

// find returns how often a word is in which file.
func (x *index) find(word string) map[string]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.words[word])
}

// all returns what was indexed, by id.
func (x *index) all() map[string]map[string]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.files) // what is in it is never changed
}

// handleIndex is the executor's endpoint /index. It answers with the documents.
func (x *index) handleIndex(_ context.Context, docs []jina.Document, _ map[string]any) ([]jina.Document, error) {
	for _, doc := range docs {
		id, text, err := doc.Text()
		if err != nil {
			return nil, err
		}
		if text == "" {
			return nil, &jinatest.Exception{Name: noText, Args: []string{"no text"}}
		}
		x.put(id, text)
	}
	return docs, nil
}

// handleSearch is the executor's endpoint /search. It answers each word with its result.
func (x *index) handleSearch(_ context.Context, docs []jina.Document, _ map[string]any) ([]jina.Document, error) {
	results := make([]jina.Document, len(docs))
	for i, doc := range docs {
		_, word, err := doc.Text()
		if err != nil {
			return nil, err
		}
		if results[i], err = newResult(word, x.find(word)); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// maxQueries is how many of the folder's words are searched for, and absent is a word
// that is in no file, since it is none.
const (
	maxQueries = 50
	absent     = "no-word"
)

// truth is what the files say: their words and how often they occur, by id.
type truth map[string]map[string]int

// find returns how often a word is in which file.
func (t truth) find(word string) map[string]int {
	matches := map[string]int{}
	for id, words := range t {
		if count := words[word]; count > 0 {
			matches[id] = count
		}
	}
	return matches
}

// queries returns words to search for: some from all over the alphabet, and one that
// occurs nowhere.
func (t truth) queries() []string {
	distinct := map[string]bool{}
	for _, words := range t {
		for word := range words {
			distinct[word] = true
		}
	}
	words := slices.Sorted(maps.Keys(distinct))
	n := min(len(words), maxQueries)
	queries := make([]string, 0, n+1)
	for i := range n {
		queries = append(queries, words[i*len(words)/n])
	}
	return append(queries, absent)
}

// report checks everything, and prints totals.
func report(out io.Writer, t truth, x *index, indexed *indexed, found *found) error {
	for _, id := range slices.Sorted(slices.Values(indexed.empty)) {
		fmt.Fprintf(out, "%q is empty\n", id)
	}
	hits := 0
	for _, matches := range found.results {
		for _, count := range matches {
			hits += count
		}
	}
	fmt.Fprintf(out, "%d files were indexed, %d are empty; %d words were searched for, and found %d times\n",
		len(x.all()), len(indexed.empty), len(found.results), hits)
	indexed.calls.print(out, "indexing")
	found.calls.print(out, "searching")
	return errors.Join(
		indexed.check(t, x.all()),
		indexed.calls.check("indexing", min(len(t), 1)),
		indexed.checkStream(),
		found.check(t),
		found.calls.check("searching", found.requests()))
}

// check holds that each file was drawn and answered once, and is in the index as it is.
func (x *indexed) check(t truth, index map[string]map[string]int) error {
	var problems []error
	if x.drawn != len(t) {
		problems = append(problems, fmt.Errorf("%d documents were drawn of %d files", x.drawn, len(t)))
	}
	empty := map[string]bool{}
	for _, id := range x.empty {
		empty[id] = true
	}
	for _, id := range slices.Sorted(maps.Keys(t)) {
		got, there := index[id]
		switch want := t[id]; {
		case x.answered[id] != 1:
			problems = append(problems, fmt.Errorf("%q was answered %d times", id, x.answered[id]))
		case (want == nil) != empty[id]:
			problems = append(problems, fmt.Errorf("%q is empty: %v, and the indexer says %v", id, want == nil, empty[id]))
		case (want == nil) == there:
			problems = append(problems, fmt.Errorf("%q is empty: %v, and in the index: %v", id, want == nil, there))
		case !maps.Equal(got, want):
			problems = append(problems, fmt.Errorf("the index has other words of %q than the file", id))
		}
	}
	// Since each of the files was answered, any more are none of them.
	if more := max(len(x.answered)-len(t), len(index)+len(empty)-len(t)); more > 0 {
		problems = append(problems, fmt.Errorf("%d files were indexed that there are not", more))
	}
	return errors.Join(problems...)
}

// checkStream holds that the deaths, and nothing else, made the stream begin anew.
func (x *indexed) checkStream() error {
	if want := x.calls.ended * (1 + x.calls.kills); x.calls.arrived != want {
		return fmt.Errorf("indexing: %d attempts arrived, not %d, one behind each death", x.calls.arrived, want)
	}
	return nil
}

// check holds that each word was found where the files say that it is.
func (f *found) check(t truth) error {
	var problems []error
	for _, word := range f.queries {
		matches, there := f.results[word]
		if want := t.find(word); !there || !maps.Equal(matches, want) {
			problems = append(problems, fmt.Errorf("the result of %q is %v, not %v", word, matches, want))
		}
	}
	if len(f.results) != len(f.queries) {
		problems = append(problems, fmt.Errorf("%d words have results, of %d", len(f.results), len(f.queries)))
	}
	return errors.Join(problems...)
}

func (c *calls) print(out io.Writer, doing string) {
	fmt.Fprintf(out, "%s: %d calls, %d attempts, of which %d found nobody and %d arrived; "+
		"the gateway was killed %d times\n", doing, c.ended, c.attempts, c.missed, c.arrived, c.kills)
}

// check holds that there were so many calls, and that what their trailers say agrees with
// what the gateway saw: an attempt that was answered has arrived, one that found nobody
// has not, and one that was lost may have.
func (c *calls) check(doing string, ended int) error {
	var problems []error
	for _, row := range []struct {
		wrong bool
		text  string
	}{
		{c.ended != ended, fmt.Sprintf("%d calls ended, not %d", c.ended, ended)},
		{c.silent > 0, fmt.Sprintf("%d trailers do not say how many attempts there were", c.silent)},
		{c.kills != c.doomed, fmt.Sprintf("the gateway was killed %d times, not %d", c.kills, c.doomed)},
		{c.missed < c.kills, fmt.Sprintf("%d attempts found nobody, after %d deaths", c.missed, c.kills)},
		{
			c.arrived < c.ended || c.arrived > c.attempts-c.missed,
			fmt.Sprintf("of %d attempts %d found nobody, but %d arrived", c.attempts, c.missed, c.arrived),
		},
		{
			c.attempts < c.ended+c.kills,
			fmt.Sprintf("%d calls made %d attempts, though there were %d deaths", c.ended, c.attempts, c.kills),
		},
	} {
		if row.wrong {
			problems = append(problems, fmt.Errorf("%s: %s", doing, row.text))
		}
	}
	return errors.Join(problems...)
}

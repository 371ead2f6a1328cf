// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seed98143e88/grpcretry/jina"
	docarraypb "github.com/seed98143e88/grpcretry/proto/docarray"
)

// Fields of a result of the search: which word it is of, and the files with that word,
// as documents within the document.
const (
	textField    = "text"
	idField      = "id"
	countField   = "count"
	matchesField = "matches"
)

// newResult makes the result of a word: how often it is in which file, by id.
func newResult(word string, matches map[string]int) (jina.Document, error) {
	list := &docarraypb.DocListProto{}
	for _, id := range slices.Sorted(maps.Keys(matches)) {
		list.Docs = append(list.Docs, &docarraypb.DocProto{Data: map[string]*docarraypb.NodeProto{
			idField: {
				Content:      &docarraypb.NodeProto_Text{Text: id},
				DocarrayType: &docarraypb.NodeProto_Type{Type: "id"},
			},
			countField: {Content: &docarraypb.NodeProto_Integer{Integer: int32(matches[id])}},
		}})
	}
	return jina.NewDocument(&docarraypb.DocProto{Data: map[string]*docarraypb.NodeProto{
		textField:    {Content: &docarraypb.NodeProto_Text{Text: word}},
		matchesField: {Content: &docarraypb.NodeProto_DocArray{DocArray: list}},
	}})
}

// readResult is the inverse of newResult.
func readResult(doc jina.Document) (word string, matches map[string]int, err error) {
	m := &docarraypb.DocProto{}
	if err := doc.Unmarshal(m); err != nil {
		return "", nil, err
	}
	word, matches = m.GetData()[textField].GetText(), map[string]int{}
	for _, match := range m.GetData()[matchesField].GetDocArray().GetDocs() {
		id := match.GetData()[idField].GetText()
		if _, twice := matches[id]; twice {
			return "", nil, fmt.Errorf("the result of %q has %q twice", word, id)
		}
		matches[id] = int(match.GetData()[countField].GetInteger())
	}
	return word, matches, nil
}

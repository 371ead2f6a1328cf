// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jinatest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed98143e88/grpcretry/jina/jinatest"
)

// What Python's repr writes for the same exceptions.
func TestExceptionText(t *testing.T) {
	for want, e := range map[string]jinatest.Exception{
		`Exception()`:                     {},
		`KeyError('a')`:                   {Name: "KeyError", Args: []string{"a"}},
		`E('', 'b')`:                      {Name: "E", Args: []string{"", "b"}},
		`E("it's")`:                       {Name: "E", Args: []string{"it's"}},
		`E('"')`:                          {Name: "E", Args: []string{`"`}},
		`E('it\'s "b"')`:                  {Name: "E", Args: []string{`it's "b"`}},
		`E('\\ \n \r \t \x00 \x7f \xa0')`: {Name: "E", Args: []string{"\\ \n \r \t \x00 \x7f \u00a0"}},
		`E('é ж \u2028 😀 \U000e0001')`:    {Name: "E", Args: []string{"é ж \u2028 😀 \U000e0001"}},
	} {
		assert.EqualError(t, &e, want)
	}
}

// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/serviceconfig"

	"github.com/seed98143e88/grpcretry"
)

// demandingBalancer does not do without a config. It is never built.
type demandingBalancer struct{ balancer.Builder }

func (demandingBalancer) Name() string { return "demanding_test" }

func (demandingBalancer) ParseConfig(config json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	if string(config) == "{}" {
		return nil, errors.New("weights are missing")
	}
	return nil, nil //nolint:nilnil // no config is a good one
}

// TestMain registers the balancer, which gRPC allows before anything else only.
func TestMain(m *testing.M) {
	balancer.Register(demandingBalancer{})
	os.Exit(m.Run())
}

// TestCheckServiceConfigSize holds that large and odd texts are checked all the same.
func TestCheckServiceConfigSize(t *testing.T) {
	t.Parallel()
	const size = 1 << 18
	entries := func(format string, n int) string {
		var text strings.Builder
		for i := range n {
			if i > 0 {
				text.WriteByte(',')
			}
			fmt.Fprintf(&text, format, i)
		}
		return text.String()
	}
	for name, row := range map[string]struct {
		text  string
		found int
	}{
		"space":              {strings.Repeat("\n", size) + "{}", 0},
		"a skipped subtree":  {`{"a":[` + strings.Repeat("1,", size) + `1]}`, 1},
		"a long string":      {`{"a":"` + strings.Repeat("é", 20*size) + `"}`, 1},
		"a long number":      {configWith("maxAttempts", strings.Repeat("9", size)), 1},
		"a long code":        {configWith("retryableStatusCodes", `["`+strings.Repeat("x", size)+`"]`), 1},
		"a long name":        {configNamed(`{"service":"` + strings.Repeat("x.", size/2) + `X"}`), 0},
		"a long duration":    {configEntry(`"timeout":"` + strings.Repeat("1", size) + `s"`), 1},
		"unknown keys":       {"{" + entries(`"k%d":1`, 20_000) + "}", 101},
		"entries":            {`{"methodConfig":[` + entries(`{"name":[{"service":"a.S%d"}]}`, 5_000) + "]}", 0},
		"entries of nothing": {`{"methodConfig":[` + entries(`{"x":%d}`, 10_000) + "]}", 101},
		"names":              {configNamed(entries(`{"%d":1}`, 200)), 101},
		"codes":              {configWith("retryableStatusCodes", "["+entries(`%d`, 200)+"]"), 101},
		"balancers":          {`{"loadBalancingConfig":[` + entries(`{"b%d":1}`, 200) + `]}`, 102},
		"a refusal too late": {`{"methodConfig":[` + entries(`{"x":%d}`, 200) + `,1]}`, 102},
		"a nested subtree":   {`{"a":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "}", 1},
		"deep":               {`{"a":` + strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_001), 1},
		"invalid UTF-8":      {"{\"\xff\xfe\":\"\xff\"}", 1},
	} {
		found := grpcretry.CheckServiceConfig(row.text)
		assert.Len(t, found, row.found, "%s", name)
		for _, f := range found {
			assert.True(t, utf8.ValidString(f.String()), "%s", name)
			assert.LessOrEqual(t, len(f.String()), 1000, "%s", name)
		}
	}
}

// TestCheckServiceConfigLast holds what comes after a hundred findings.
func TestCheckServiceConfigLast(t *testing.T) {
	t.Parallel()
	text := `{"methodConfig":[` + strings.Repeat("{\"x\":1},\n", 200) + "1]}"
	found := grpcretry.CheckServiceConfig(text)
	require.Len(t, found, 102)
	assert.True(t, found[0].Refused, "%v", found[0])
	assert.Contains(t, found[0].Reason, "gRPC refuses the config: json: cannot unmarshal number")
	assert.Equal(t, 201, found[101].Line)
	assert.Equal(t, "there are 100 findings, and the check ended with them", found[101].Reason)
}

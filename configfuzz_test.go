// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/seed98143e88/grpcretry"
)

// takenByGRPC returns what grpc.NewClient says of a service config.
func takenByGRPC(t *testing.T, text string) error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///x",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(text))
	if err == nil {
		require.NoError(t, conn.Close())
	}
	return err
}

func isRefusal(f grpcretry.Finding) bool { return f.Refused }

// FuzzCheckServiceConfig holds that there is a finding for a refusal if and only if gRPC
// refuses the config. The check asks gRPC itself, so what it finds without asking is held
// to the same, but for keys that are written twice, and where it stopped early.
func FuzzCheckServiceConfig(f *testing.F) {
	for _, row := range configRows() {
		f.Add(row.text)
	}
	for _, seed := range configSeeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		err := takenByGRPC(t, text)
		found := grpcretry.CheckServiceConfig(text)
		assert.Equal(t, err != nil, slices.ContainsFunc(found, isRefusal), "gRPC says %v, and %v was found", err, found)
		line := 1
		for _, finding := range found {
			assert.GreaterOrEqual(t, finding.Line, line, "%v", finding)
			line = finding.Line
			assert.NotEmpty(t, finding.Reason)
			assert.NotContains(t, finding.String(), "\n")
			assert.True(t, utf8.ValidString(finding.String()), "%q", finding)
		}
		assert.LessOrEqual(t, line, 1+strings.Count(text, "\n"))
		assert.LessOrEqual(t, len(found), 102)

		alone := grpcretry.WalkServiceConfig(text)
		twice := func(f grpcretry.Finding) bool { return strings.Contains(f.Reason, "there twice") }
		if len(alone) < 100 && !slices.ContainsFunc(alone, twice) {
			assert.Equal(t, err != nil, slices.ContainsFunc(alone, isRefusal), "gRPC says %v, and %v was found", err, alone)
		}
	})
}

// wholeConfig has each key that grpc-go reads.
const wholeConfig = `{"loadBalancingPolicy":"round_robin","loadBalancingConfig":[{"none":{}},{"pick_first":{}}],
	"methodConfig":[{"name":[{"service":"a.B","method":"C"},{"service":"D"}],"waitForReady":true,"timeout":"1s",
	"maxRequestMessageBytes":1,"maxResponseMessageBytes":2,"retryPolicy":{"maxAttempts":3,"initialBackoff":"0.1s",
	"maxBackoff":"1s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}},{"name":[{}]}],
	"retryThrottling":{"maxTokens":10,"tokenRatio":0.1},"healthCheckConfig":{"serviceName":"a.B"}}`

// oddValues are values to put anywhere; the first stands for none at all.
var oddValues = []string{
	"", "null", "true", "0", "1", "3", "-1", "-0", "16", "17", "2.5", "3.0", "1e3", "1e999", "1e-999", "9223372036854775808",
	`""`, `"3"`, `"s"`, `"1s"`, `"0s"`, `"-1s"`, `"--1s"`, `".1s"`, `"100ms"`, `"315576000001s"`, `"UNAVAILABLE"`, `"unavailable"`,
	`"OK"`, `"a.B"`, `"D"`, `"pick_first"`, `"grpcretry.test.v1.TestService"`, "[]", "{}", "[null]", "[{}]", "[[]]", "[1]",
	`["INTERNAL",null,1]`, `{"a":1}`, `[{"service":"a.B","method":"C"}]`, `[{"pick_first":null}]`, `[{"a":1},{}]`,
}

// variants passes on the JSON of all values that differ from a value in one place.
func variants(value any, pass func(string)) {
	encode := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	for _, odd := range oddValues {
		pass(odd)
	}
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			rest := maps.Clone(value)
			delete(rest, key)
			others := strings.TrimSuffix(encode(rest), "}")
			variants(value[key], func(text string) {
				switch {
				case text == "":
					pass(others + "}")
				case len(rest) == 0:
					pass(others + encode(key) + ":" + text + "}")
				default:
					pass(others + "," + encode(key) + ":" + text + "}")
				}
			})
		}
	case []any:
		for i := range value {
			variants(value[i], func(text string) {
				var elements []string
				for j, other := range value {
					if j != i {
						elements = append(elements, encode(other))
					} else if text != "" {
						elements = append(elements, text)
					}
				}
				pass("[" + strings.Join(elements, ",") + "]")
			})
		}
	}
}

// TestCheckServiceConfigVariants holds what the check finds without asking gRPC against
// gRPC, for any value in any place.
func TestCheckServiceConfigVariants(t *testing.T) {
	t.Parallel()
	var whole any
	require.NoError(t, json.Unmarshal([]byte(wholeConfig), &whole))
	count := 0
	variants(whole, func(text string) {
		count++
		err := takenByGRPC(t, text)
		found := grpcretry.WalkServiceConfig(text)
		if err != nil != slices.ContainsFunc(found, isRefusal) {
			t.Errorf("gRPC says %v of %s, and %v was found", err, text, found)
		}
	})
	assert.Greater(t, count, 1000)
}

// configSeeds are configs that a check could easily take for others.
var configSeeds = []string{
	`{"methodConfig":[{"name":[{"service":"a/b"},{"service":"a","method":"b/"}]}]}`,
	`{"methodConfig":[{"name":[{}],"timeout":"--1s"},{"name":[null]}]}`,
	`{"methodConfig":[{"timeout":"1.+5s"},{"timeout":"-.1s"},{"timeout":"+1.s"},{"timeout":"9223372036.9s"}]}`,
	`{"methodConfig":[{"timeout":"-9223372036.854775809s"},{"timeout":"315576000001s"},{"timeout":"1.-5s"}]}`,
	`{"methodConfig":[{"retryPolicy":{"retryableStatusCodes":["\u0055NAVAILABLE"]}}]}`,
	`{"methodConfig":[{"retryPolicy":{"retryableStatusCodes":[16,17,-0,1e1,{},[]]}}]}`,
	`{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":-0,"backoffMultiplier":1e-999}}]}`,
	`{"methodConfig":[],"retryThrottling":{"maxTokens":1e3,"tokenRatio":5e-324}}`,
	`{"loadBalancingConfig":[{"a":1,"a":2},{"pick_first":{}},{}]}`,
	`{"loadBalancingConfig":[{"pick_first":{"shuffleAddressList":1}}]}`,
	`{"loadBalancingConfig":[null,{"round_robin":null}]}`,
	`{"loadBalancingConfig":{},"loadBalancingPolicy":"round_robin"}`,
	`{"methodConfig":[{"name":[{"service":"a"}],"retryPolicy":{"maxAttempts":2}}],"methodConfig":[null]}`,
	`{"methodConfig":[{"name":[{"service":"a"}]}],"methodConfig":[{"name":[{"service":"a"}]}]}`,
	"{\"healthChec\u212aConfig\":{\"\u017ferviceName\":3}}",
	"{\"\xff\":1,\"methodConfig\":[{\"name\":[{\"service\":\"\xff\"},{\"service\":\"\xfe\"}]}]}",
	`{"waitForReady":1,"methodConfig":[{"waitForReady":null,"maxRequestMessageBytes":9223372036854775808}]}`,
	" \n{}\n ", "{}x", "\ufeff{}", `{"a":` + "\"\x00\"}", "nul", `""`, "0", "true",
}

// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed98143e88/grpcretry"
)

// configRow is a service config, and the one thing that is wrong with it.
type configRow struct {
	text    string
	path    string
	reason  string // a part of it
	remedy  string // the same
	line    int    // 0 means 1
	refused bool
	others  int // findings beside the one
}

// configEntry is a config with one entry of methodConfig for all methods.
func configEntry(fields string) string { return `{"methodConfig":[{"name":[{}],` + fields + `}]}` }

// configNamed is a config with one entry of methodConfig for the names.
func configNamed(names string) string { return `{"methodConfig":[{"name":[` + names + `]}]}` }

// configPolicy is a retryPolicy with other values for some of its fields, or none for "".
func configPolicy(changes ...string) string {
	fields := []string{
		"maxAttempts", "3", "initialBackoff", `"0.1s"`, "maxBackoff", `"1s"`,
		"backoffMultiplier", "2", "retryableStatusCodes", `["UNAVAILABLE"]`,
	}
	var texts []string
	for field := range slices.Chunk(fields, 2) {
		name, value := field[0], field[1]
		for change := range slices.Chunk(changes, 2) {
			if change[0] == name {
				value = change[1]
			}
		}
		if value != "" {
			texts = append(texts, `"`+name+`":`+value)
		}
	}
	return `"retryPolicy":{` + strings.Join(texts, ",") + `}`
}

// configWith is a config whose policy has another value for a field.
func configWith(changes ...string) string { return configEntry(configPolicy(changes...)) }

const policyPath = "methodConfig[0].retryPolicy"

// configThrottled is a config with retryThrottling.
func configThrottled(fields string) string {
	return `{"methodConfig":[],"retryThrottling":` + fields + `}`
}

// configRows are all the things that can be wrong.
func configRows() []configRow {
	var rows []configRow
	for _, some := range [][]configRow{
		textRows(), keyRows(), methodRows(), durationRows(), policyRows(), codeRows(), nameRows(), linkedRows(),
		throttlingRows(), balancerRows(),
	} {
		rows = append(rows, some...)
	}
	return rows
}

func textRows() []configRow {
	return []configRow{
		{text: "", reason: "empty", remedy: "{}", refused: true},
		{text: "{", reason: "not JSON: unexpected end", refused: true},
		{text: "{\n\"methodConfig\": [\n],\n}", line: 4, reason: "not JSON", refused: true},
		{text: "{}\n{}", line: 2, reason: "after top-level value", refused: true},
		{text: "{\"a\": 'b'}", reason: "not JSON", refused: true},
		{text: "{} // none", reason: "not JSON", refused: true},
		{text: strings.Repeat("[", 100_000), reason: "exceeded max depth", refused: true},
		{text: "\n null ", line: 2, reason: "null is taken for a config that says nothing", remedy: "{}"},
		{text: "[]", reason: "must be an object", refused: true},
		{text: `"{}"`, reason: "must be an object", refused: true},
		{text: "1", reason: "must be an object", refused: true},
	}
}

func keyRows() []configRow {
	return []configRow{
		{text: "{\n\"extra\": 1}", path: "extra", line: 2, reason: "no such key in the config itself", remedy: "leave it out"},
		{text: `{"a b":{"c":[1]}}`, path: `["a b"]`, reason: "no such key"},
		{text: `{"":1}`, path: `[""]`, reason: "no such key"},
		{text: `{"` + strings.Repeat("x", 1000) + `":1}`, path: `["` + strings.Repeat("x", 60) + `…"]`, reason: "no such key"},
		{text: `{"methodConfigs":[]}`, path: "methodConfigs", reason: "no such key", remedy: `write "methodConfig"`},
		{text: `{"method_config":[]}`, path: "method_config", reason: "no such key", remedy: `write "methodConfig"`},
		{text: `{"retryPolicy":{}}`, path: "retryPolicy", reason: "no such key", remedy: "move it to an entry of methodConfig"},
		{text: `{"maxAttempts":3}`, path: "maxAttempts", reason: "no such key", remedy: "move it to a retryPolicy"},
		{text: `{"serviceConfig":{}}`, path: "serviceConfig", reason: "DNS records", remedy: "alone"},
		{text: configEntry(`"retrypolice":{}`), path: "methodConfig[0].retrypolice", reason: "no such key in an entry of methodConfig", remedy: `write "retryPolicy"`},
		{text: configEntry(`"service":"a.B"`), path: "methodConfig[0].service", reason: "no such key", remedy: "move it to an entry of name"},
		{text: configEntry(`"hedgingPolicy":{"maxAttempts":3}`), path: "methodConfig[0].hedgingPolicy", reason: "each call is made once", remedy: "retryPolicy"},
		{text: configEntry(`"hedgingPolicy":1,` + configPolicy()), path: "methodConfig[0].hedgingPolicy", reason: "other languages refuse"},
		{text: configEntry(`"retryPolicy":{"perAttemptRecvTimeout":"1s",` + configPolicy()[len(`"retryPolicy":{`):]), path: policyPath + ".perAttemptRecvTimeout", reason: "does not bound attempts", remedy: "Policy.AttemptTimeout"},
		{text: configNamed(`{"servce":"a.B"}`), path: "methodConfig[0].name[0].servce", reason: "no such key in an entry of name", remedy: `"service"`},
		{text: configThrottled(`{"maxTokens":10,"tokenRatio":0.1,"ratio":1}`), path: "retryThrottling.ratio", reason: "no such key in retryThrottling"},
		{text: `{"loadBalancingPolicy":"round_robin","healthCheckConfig":{"serviceName":"a","service":"b"}}`, path: "healthCheckConfig.service", reason: "no such key in healthCheckConfig", remedy: "move it"},
		{text: `{"MethodConfig":[]}`, path: "MethodConfig", reason: "alone takes the key", remedy: `"methodConfig"`},
		{text: "{\"methodConfig\":[],\n\"methodConfig\":[]}", path: "methodConfig", line: 2, reason: "there twice", remedy: "leave one of them out"},
		{text: `{"methodConfig":[],"METHODCONFIG":[]}`, path: "METHODCONFIG", reason: "there twice", others: 1},
		{text: configEntry(`"retryPolicy":null,` + configPolicy()), path: policyPath, reason: "there twice"},
		{text: configEntry(configPolicy("maxAttempts", "4,\n\"maxAttempts\":1")), path: policyPath + ".maxAttempts", line: 2, reason: "2 or more", refused: true, others: 1},
		{text: configEntry(`"retryPolicy":{"maxAttempts":"x"},` + configPolicy()), reason: "gRPC refuses the config: json: cannot unmarshal", refused: true, others: 1},
		{text: configEntry(configPolicy() + `,"retryPolicy":{}`), path: policyPath, reason: "there twice"},
	}
}

func methodRows() []configRow {
	const first = "methodConfig[0]"
	return []configRow{
		{text: `{"methodConfig":null}`, path: "methodConfig", reason: "null counts as left out"},
		{text: `{"methodConfig":{}}`, path: "methodConfig", reason: "must be an array", refused: true},
		{text: `{"methodConfig":[null]}`, path: first, reason: "without name"},
		{text: `{"methodConfig":[1]}`, path: first, reason: "must be an object", refused: true},
		{text: `{"methodConfig":["a"]}`, path: first, reason: "must be an object", refused: true},
		{text: `{"methodConfig":[{}]}`, path: first, reason: "applies to no method", remedy: `add "name": [{}]`},
		{text: `{"methodConfig":[{"name":null}]}`, path: first + ".name", reason: "applies to no method", remedy: "[{}]"},
		{text: `{"methodConfig":[{"name":[]}]}`, path: first + ".name", reason: "applies to no method", remedy: "[{}]"},
		{text: `{"methodConfig":[{` + configPolicy("maxAttempts", "1") + `}]}`, path: policyPath + ".maxAttempts", reason: "2 or more", others: 1},
		{text: `{"methodConfig":[{"retryPolicy":{}}]}`, path: policyPath + ".maxAttempts", reason: "missing", others: 5},
		{text: `{"methodConfig":[{"retryPolicy":{"maxAttempts":"3"}}]}`, path: policyPath + ".maxAttempts", reason: "whole number", refused: true, others: 5},
		{text: `{"methodConfig":[{"name":[],` + configPolicy("maxAttempts", "1") + `}]}`, path: policyPath + ".maxAttempts", reason: "2 or more", refused: true, others: 1},
		{text: configEntry(`"waitForReady":"true"`), path: first + ".waitForReady", reason: "boolean", remedy: "without quotes", refused: true},
		{text: configEntry(`"waitForReady":1`), path: first + ".waitForReady", reason: "boolean", refused: true},
		{text: configEntry(`"waitForReady":null`), path: first + ".waitForReady", reason: "null counts as left out"},
		{text: configEntry(`"timeout":null`), path: first + ".timeout", reason: "null counts as left out"},
		{text: configEntry(`"timeout":"0s"`), path: first + ".timeout", reason: "fails at once"},
		{text: configEntry(`"timeout":"-0.0s"`), path: first + ".timeout", reason: "fails at once"},
		{text: configEntry(`"timeout":"-9223372037s"`), path: first + ".timeout", reason: "negative timeout is ignored"},
		{text: configEntry(`"timeout":"-1s"`), path: first + ".timeout", reason: "negative timeout is ignored"},
		{text: configEntry(`"maxRequestMessageBytes":"100"`), path: first + ".maxRequestMessageBytes", reason: "without quotes", remedy: "write 100", refused: true},
		{text: configEntry(`"maxRequestMessageBytes":1e3`), path: first + ".maxRequestMessageBytes", reason: "exponent", remedy: "write 1000", refused: true},
		{text: configEntry(`"maxResponseMessageBytes":9223372036854775808`), path: first + ".maxResponseMessageBytes", reason: "64 bits", refused: true},
		{text: configEntry(`"maxResponseMessageBytes":-1`), path: first + ".maxResponseMessageBytes", reason: "RESOURCE_EXHAUSTED"},
		{text: configEntry(`"maxRequestMessageBytes":0`), path: first + ".maxRequestMessageBytes", reason: "not empty"},
		{text: configEntry(`"maxRequestMessageBytes":null`), path: first + ".maxRequestMessageBytes", reason: "null counts"},
	}
}

func durationRows() []configRow {
	var rows []configRow
	for value, remedy := range map[string]string{
		`"100ms"`: `"0.1s"`, `"1e-3s"`: `"0.001s"`, "0.1": `"0.1s"`, "1": `"1s"`, `"1"`: `"1s"`, `"5m"`: `"300s"`, `"1h"`: `"3600s"`,
		`"0.1234567890s"`: `"0.123456789s"`, `"1.2.3s"`: "write seconds", `"s"`: "write seconds", `""`: "write seconds",
		`".s"`: "write seconds", `"1 s"`: "write seconds", `"315576000001s"`: "write seconds", "true": "write seconds",
		"{}": "write seconds", "[]": "write seconds", `"abcs"`: "write seconds", `"1,5s"`: "write seconds",
	} {
		rows = append(rows,
			configRow{text: configWith("initialBackoff", value), path: policyPath + ".initialBackoff", reason: "string of seconds", remedy: remedy, refused: true},
			configRow{text: configWith("maxBackoff", value), path: policyPath + ".maxBackoff", reason: "string of seconds", remedy: remedy, refused: true},
			configRow{text: configEntry(`"timeout":` + value), path: "methodConfig[0].timeout", reason: "string of seconds", remedy: remedy, refused: true})
	}
	for _, value := range []string{`".5s"`, `"1.s"`, `"+1s"`, `"--1s"`, `"1.+5s"`} {
		rows = append(rows, configRow{text: configEntry(`"timeout":` + value), path: "methodConfig[0].timeout", reason: "in this form"})
	}
	return rows
}

func policyRows() []configRow {
	var rows []configRow
	for _, field := range []string{"maxAttempts", "initialBackoff", "maxBackoff", "backoffMultiplier", "retryableStatusCodes"} {
		path := policyPath + "." + field
		rows = append(rows,
			configRow{text: configWith(field, ""), path: path, reason: "missing", refused: true},
			configRow{text: configWith(field, "null"), path: path, reason: "null", refused: true},
			configRow{text: configWith(field, `"x"`), path: path, reason: "", refused: true},
			configRow{text: configWith(field, `{}`), path: path, reason: "", refused: true})
	}
	const attempts, initial, longest = policyPath + ".maxAttempts", policyPath + ".initialBackoff", policyPath + ".maxBackoff"
	const multiplier = policyPath + ".backoffMultiplier"
	return append(rows, []configRow{
		{text: configEntry(`"retryPolicy":null`), path: policyPath, reason: "null counts as left out"},
		{text: configEntry(`"retryPolicy":[]`), path: policyPath, reason: "must be an object", refused: true},
		{text: configEntry(`"retryPolicy":{}`), path: policyPath + ".retryableStatusCodes", reason: "missing", refused: true, others: 4},
		{text: configWith("maxAttempts", "\n1"), path: attempts, line: 2, reason: "2 or more", remedy: "2 to 5", refused: true},
		{text: configWith("maxAttempts", "0"), path: attempts, reason: "2 or more", refused: true},
		{text: configWith("maxAttempts", "-2"), path: attempts, reason: "2 or more", refused: true},
		{text: configWith("maxAttempts", "3.0"), path: attempts, reason: "whole number", remedy: "write 3", refused: true},
		{text: configWith("maxAttempts", "2.5"), path: attempts, reason: "whole number", remedy: "write a whole number", refused: true},
		{text: configWith("maxAttempts", `"3"`), path: attempts, reason: "whole number", remedy: "write 3", refused: true},
		{text: configWith("maxAttempts", strings.Repeat("9", 400)), path: attempts, reason: "whole number", refused: true},
		{text: configWith("maxAttempts", "6"), path: attempts, reason: "5 attempts at most", remedy: "WithMaxCallAttempts"},
		{text: configWith("initialBackoff", `"0s"`), path: initial, reason: "longer than 0", refused: true},
		{text: configWith("initialBackoff", `"-1s"`), path: initial, reason: "longer than 0", refused: true},
		{text: configWith("initialBackoff", `"2s"`), path: initial, reason: "over maxBackoff", remedy: `"1s"`},
		{text: configWith("maxBackoff", `"0s"`), path: longest, reason: "longer than 0", refused: true},
		{text: configWith("maxBackoff", `"-1s"`), path: longest, reason: "longer than 0", refused: true},
		{text: configWith("backoffMultiplier", "0"), path: multiplier, reason: "greater than 0", refused: true},
		{text: configWith("backoffMultiplier", "-1"), path: multiplier, reason: "greater than 0", refused: true},
		{text: configWith("backoffMultiplier", "1e-999"), path: multiplier, reason: "greater than 0", refused: true},
		{text: configWith("backoffMultiplier", "1e999"), path: multiplier, reason: "too large", refused: true},
		{text: configWith("backoffMultiplier", `"2"`), path: multiplier, reason: "must be a number", refused: true},
		{text: configWith("backoffMultiplier", "0.5"), path: multiplier, reason: "shorter"},
	}...)
}

func codeRows() []configRow {
	const path = policyPath + ".retryableStatusCodes"
	rows := []configRow{
		{text: configWith("retryableStatusCodes", "[]"), path: path, reason: "retries no code", refused: true},
		{text: configWith("retryableStatusCodes", `["UNAVAILABLE",14]`), path: path + "[1]", reason: "by number", remedy: `"UNAVAILABLE"`},
		{text: configWith("retryableStatusCodes", `["OK"]`), path: path + "[0]", reason: "never retried"},
		{text: configWith("retryableStatusCodes", `[0]`), path: path + "[0]", reason: "never retried"},
		{text: configWith("retryableStatusCodes", `[null]`), path: path + "[0]", reason: "read as OK"},
	}
	for value, remedy := range map[string]string{
		`"unavailable"`: `"UNAVAILABLE"`, `"Unavailable"`: `"UNAVAILABLE"`, `"UNAVAILABLEE"`: `"UNAVAILABLE"`, `"CANCELED"`: `"CANCELLED"`,
		`"DeadlineExceeded"`: `"DEADLINE_EXCEEDED"`, `"deadline-exceeded"`: `"DEADLINE_EXCEEDED"`, `"14"`: `"UNAVAILABLE"`,
		`"\u0055NAVAILABLE"`: `"UNAVAILABLE"`, `"NONE"`: "DATA_LOSS", "17": "DATA_LOSS", "-1": "DATA_LOSS", "14.0": "DATA_LOSS",
		"true": "DATA_LOSS", "{}": "DATA_LOSS", "[]": "DATA_LOSS",
	} {
		rows = append(rows, configRow{
			text: configWith("retryableStatusCodes", "["+value+"]"), path: path + "[0]", reason: "no such code", remedy: remedy, refused: true,
		})
	}
	return rows
}

func nameRows() []configRow {
	const path = "methodConfig[0].name"
	return []configRow{
		{text: `{"methodConfig":[{"name":{}}]}`, path: path, reason: "must be an array", refused: true},
		{text: `{"methodConfig":[{"name":"a.B"}]}`, path: path, reason: "must be an array", refused: true},
		{text: configNamed(`"a.B"`), path: path + "[0]", reason: "must be an object", refused: true},
		{text: configNamed(`null`), path: path + "[0]", reason: "stands for all methods"},
		{text: configNamed(`{"service":1}`), path: path + "[0].service", reason: "must be a string", refused: true},
		{text: configNamed(`{"service":"a.B","method":[]}`), path: path + "[0].method", reason: "must be a string", refused: true},
		{text: configNamed(`{"service":null}`), path: path + "[0].service", reason: "null counts"},
		{text: configNamed(`{"method":"Do"}`), path: path + "[0]", reason: "needs its service", refused: true},
		{text: configNamed(`{"service":"","method":"Do"}`), path: path + "[0]", reason: "needs its service", refused: true},
		{text: configNamed(`{},{}`), path: path + "[1]", reason: "in line 1 already", refused: true},
		{text: configNamed(`{},{"service":""}`), path: path + "[1]", reason: "already", refused: true},
		{text: "{\"methodConfig\":[\n{\"name\":[{\"service\":\"a.B\"}]},\n{\"name\":[{\"service\":\"a.B\"}]}]}", path: "methodConfig[1].name[0]", line: 3, reason: "in line 2 already", refused: true},
		{text: configNamed(`{"service":"/a.B"}`), path: path + "[0].service", reason: "never matches", remedy: `"a.B"`},
		{text: configNamed(`{"service":"a.B/"}`), path: path + "[0].service", reason: "never matches", remedy: `"a.B"`},
		{text: configNamed(`{"service":"a.B/Do"}`), path: path + "[0].service", reason: "never matches", remedy: `"service": "a.B", "method": "Do"`},
		{text: configNamed(`{"service":"a.B","method":"/Do"}`), path: path + "[0].method", reason: "never matches", remedy: `"Do"`},
		{text: configNamed(`{"service":"a.B","method":"/a.B/Do"}`), path: path + "[0].method", reason: "never matches", remedy: `"Do"`},
		{text: configNamed(`{"service":"a.*"}`), path: path + "[0].service", reason: "no patterns"},
		{text: configNamed(`{"service":"a.B","method":"*"}`), path: path + "[0].method", reason: "no patterns"},
		{text: configNamed(`{"service":" a.B"}`), path: path + "[0].service", reason: "space", remedy: `"a.B"`},
		{text: configNamed(`{"service":"a.B","method":"Do "}`), path: path + "[0].method", reason: "space", remedy: `"Do"`},
	}
}

// linkedRows are about names of the service that is linked into the tests.
func linkedRows() []configRow {
	const path = "methodConfig[0].name[0]"
	const service = `"service":"grpcretry.test.v1.TestService"`
	const others = `{"name":[{` + service + `,"method":"Exchange"}]},{"name":[{` + service + `,"method":"Upload"}]}`
	return []configRow{
		{text: configNamed(`{"service":"grpcretry.test.v1"}`), path: path + ".service", reason: "is a package", remedy: "TestService"},
		{text: configNamed(`{"service":"grpcretry.test.v1.testservice"}`), path: path + ".service", reason: "letter case", remedy: "TestService"},
		{text: configNamed(`{"service":"grpcretry.test.v1.TestServices"}`), path: path + ".service", reason: "no such service", remedy: `write "grpcretry.test.v1.TestService"`},
		{text: configNamed(`{"service":"grpcretry.test.v1.Other"}`), path: path + ".service", reason: "no such service", remedy: "write grpcretry.test.v1.TestService"},
		{text: configNamed(`{"service":"grpcretry.test.v1.Request"}`), path: path + ".service", reason: "is no service"},
		{text: configNamed(`{"service":"grpcretry.test.v1.TestService.Read"}`), path: path + ".service", reason: "is a method", remedy: `"method": "Read"`},
		{text: configNamed(`{"service":"google.protobuf"}`), path: path + ".service", reason: "is a package", remedy: "write a service"},
		{text: configNamed(`{` + service + `,"method":"read"}`), path: path + ".method", reason: "letter case", remedy: `"Read"`},
		{text: configNamed(`{` + service + `,"method":"Raed"}`), path: path + ".method", reason: "no such method", remedy: "write Download, Exchange"},
		{text: configNamed(`{` + service + `,"method":"Uploads"}`), path: path + ".method", reason: "no such method", remedy: `write "Upload"`},
		{text: `{"methodConfig":[{"name":[{` + service + `,"method":"Upload"}],` + configPolicy() + `}]}`, path: path, reason: "failure as success", remedy: "without retryPolicy"},
		{text: `{"methodConfig":[{"name":[{` + service + `,"method":"Exchange"}],` + configPolicy() + `}]}`, path: path, reason: "deadlock"},
		{text: `{"methodConfig":[{"name":[{` + service + `}],` + configPolicy() + `}]}`, path: path, reason: "(Upload and Exchange)"},
		{text: `{"methodConfig":[{"name":[{` + service + `}],` + configPolicy() + `},` + others + `,{}]}`, path: "methodConfig[3]", reason: "without name"},
	}
}

func throttlingRows() []configRow {
	const tokens, ratio = "retryThrottling.maxTokens", "retryThrottling.tokenRatio" //nolint:gosec // no credentials
	return []configRow{
		{text: `{"retryThrottling":{"maxTokens":10,"tokenRatio":0.1}}`, path: "retryThrottling", reason: "without methodConfig"},
		{text: `{"retryThrottling":{"maxTokens":0,"tokenRatio":0.1}}`, path: tokens, reason: "at most 1000", others: 1},
		{text: `{"methodConfig":null,"retryThrottling":{"maxTokens":10}}`, path: ratio, reason: "missing", others: 2},
		{text: `{"retryThrottling":{"maxTokens":"1","tokenRatio":0.1}}`, path: tokens, reason: "must be a number", refused: true, others: 1},
		{text: configThrottled(`null`), path: "retryThrottling", reason: "null counts"},
		{text: configThrottled(`[]`), path: "retryThrottling", reason: "must be an object", refused: true},
		{text: configThrottled(`{"tokenRatio":0.1}`), path: tokens, reason: "missing", refused: true},
		{text: configThrottled(`{"maxTokens":null,"tokenRatio":0.1}`), path: tokens, reason: "null counts", refused: true},
		{text: configThrottled(`{"maxTokens":0,"tokenRatio":0.1}`), path: tokens, reason: "at most 1000", refused: true},
		{text: configThrottled(`{"maxTokens":1000.5,"tokenRatio":0.1}`), path: tokens, reason: "at most 1000", refused: true},
		{text: configThrottled(`{"maxTokens":10.5,"tokenRatio":0.1}`), path: tokens, reason: "not whole"},
		{text: configThrottled(`{"maxTokens":10}`), path: ratio, reason: "missing", refused: true},
		{text: configThrottled(`{"maxTokens":10,"tokenRatio":0}`), path: ratio, reason: "greater than 0", refused: true},
		{text: configThrottled(`{"maxTokens":10,"tokenRatio":-1}`), path: ratio, reason: "greater than 0", refused: true},
		{text: configThrottled(`{"maxTokens":10,"tokenRatio":"0.1"}`), path: ratio, reason: "must be a number", refused: true},
		{text: configThrottled(`{"maxTokens":10,"tokenRatio":0.1234}`), path: ratio, reason: "3 decimals"},
	}
}

func balancerRows() []configRow {
	const config, policy, health = "loadBalancingConfig", "loadBalancingPolicy", "healthCheckConfig"
	return []configRow{
		{text: `{"loadBalancingPolicy":"round_robbin"}`, path: policy, reason: "takes pick_first"},
		{text: `{"loadBalancingPolicy":""}`, path: policy, reason: "takes pick_first"},
		{text: `{"loadBalancingPolicy":null}`, path: policy, reason: "null counts"},
		{text: `{"loadBalancingPolicy":["round_robin"]}`, path: policy, reason: "must be a string", refused: true},
		{text: `{"loadBalancingPolicy":"pick_first","loadBalancingConfig":[{"round_robin":{}}]}`, path: policy, reason: "goes by that"},
		{text: `{"loadBalancingPolicy":"demanding_test"}`, path: policy, reason: "needs a config: weights are missing", refused: true},
		{text: `{"loadBalancingConfig":null}`, path: config, reason: "null counts"},
		{text: `{"loadBalancingConfig":{}}`, path: config, reason: "must be an array", refused: true},
		{text: `{"loadBalancingConfig":"round_robin"}`, path: config, reason: "must be an array", refused: true},
		{text: `{"loadBalancingConfig":[]}`, path: config, reason: "no balancer in it is linked", refused: true},
		{text: `{"loadBalancingConfig":[{"none":{}}]}`, path: config, reason: "no balancer in it is linked", refused: true, others: 1},
		{text: `{"loadBalancingConfig":[{"none":{}},{"round_robin":{}}]}`, path: config + "[0].none", reason: "goes on to the next"},
		{text: `{"loadBalancingConfig":["round_robin"]}`, path: config + "[0]", reason: "must be an object", refused: true},
		{text: `{"loadBalancingConfig":[null]}`, path: config + "[0]", reason: "one key", refused: true},
		{text: `{"loadBalancingConfig":[{}]}`, path: config + "[0]", reason: "one key", refused: true},
		{text: `{"loadBalancingConfig":[{"round_robin":{},"pick_first":{}}]}`, path: config + "[0]", reason: "one key", refused: true},
		{text: `{"loadBalancingConfig":[{"round_robin":{}},{}]}`, path: config + "[1]", reason: "one key"},
		{text: `{"loadBalancingConfig":[{"round_robin":{}},1]}`, path: config + "[1]", reason: "must be an object", refused: true},
		{text: `{"loadBalancingConfig":[{"round_robin":{"a":1}}]}`, path: config + "[0].round_robin", reason: "takes no config"},
		{text: `{"loadBalancingConfig":[{"round_robin":1}]}`, path: config + "[0].round_robin", reason: "takes no config"},
		{text: `{"loadBalancingConfig":[{"pick_first":{"shuffleAddressList":1}}]}`, path: config + "[0].pick_first", reason: "refuses its config", refused: true},
		{text: `{"loadBalancingPolicy":"round_robin","healthCheckConfig":{}}`, path: health + ".serviceName", reason: "whole server"},
		{text: `{"loadBalancingPolicy":"round_robin","healthCheckConfig":{"serviceName":""}}`, path: health + ".serviceName", reason: "whole server"},
		{text: `{"loadBalancingPolicy":"round_robin","healthCheckConfig":{"serviceName":null}}`, path: health + ".serviceName", reason: "null counts", others: 1},
		{text: `{"healthCheckConfig":{"serviceName":1},"loadBalancingPolicy":"round_robin"}`, path: health + ".serviceName", reason: "must be a string", refused: true},
		{text: `{"healthCheckConfig":1}`, path: health, reason: "must be an object", refused: true},
		{text: `{"healthCheckConfig":null}`, path: health, reason: "null counts"},
		{text: `{"healthCheckConfig":{"serviceName":"a"}}`, path: health, reason: "pick_first does not look"},
		{text: `{"loadBalancingPolicy":"pick_first","healthCheckConfig":{"serviceName":"a"}}`, path: health, reason: "pick_first does not look"},
		{text: `{"loadBalancingConfig":[{"pick_first":{}}],"healthCheckConfig":{"serviceName":"a"}}`, path: health, reason: "pick_first does not look"},
		{text: `{"loadBalancingPolicy":"none","healthCheckConfig":{"serviceName":"a"}}`, path: health, reason: "pick_first does not look", others: 1},
	}
}

// TestCheckServiceConfig holds each row, and gRPC to the same verdict.
func TestCheckServiceConfig(t *testing.T) {
	t.Parallel()
	for _, row := range configRows() {
		found := grpcretry.CheckServiceConfig(row.text)
		assert.Len(t, found, 1+row.others, "%.200s: %v", row.text, found)
		var match *grpcretry.Finding
		for i, f := range found {
			if f.Path == row.path && f.Refused == row.refused && strings.Contains(f.Reason, row.reason) {
				match = &found[i]
			}
		}
		if assert.NotNil(t, match, "%.200s: no such finding among %v", row.text, found) {
			assert.Equal(t, max(row.line, 1), match.Line, "%.200s", row.text)
			assert.Contains(t, match.Remedy, row.remedy, "%.200s", row.text)
		}
		if err := takenByGRPC(t, row.text); row.refused {
			assert.ErrorContains(t, err, "default service config is invalid", "%.200s", row.text)
		} else {
			assert.NoError(t, err, "%.200s", row.text)
		}
	}
}

// TestCheckServiceConfigNothing holds that there is nothing to say of good configs.
func TestCheckServiceConfigNothing(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"{}", oracleConfig, configWith("initialBackoff", `"9223372037s"`, "maxBackoff", `"315576000000s"`), configWith("maxAttempts", "5"), configNamed(`{"service":"other.Service","method":"Do"}`),
		configNamed(`{"service":"grpcretry.test.v1.TestService","method":"Read"},{"service":"Bare"},{}`),
		configNamed(`{"service":"grpcretry.test.v1.TestService"}`),
		`{"methodConfig":[{"name":[{"service":"grpcretry.test.v1.TestService","method":"Download"}],` + configPolicy() + `}]}`,
		configEntry(`"waitForReady":true,"timeout":"1.500s","maxRequestMessageBytes":4194304,"maxResponseMessageBytes":1`),
		configThrottled(`{"maxTokens":1000,"tokenRatio":0.001}`),
		`{"loadBalancingConfig":[{"round_robin":{}}],"healthCheckConfig":{"serviceName":"a.B"}}`,
		`{"loadBalancingPolicy":"round_robin"}`,
	} {
		assert.Nil(t, grpcretry.CheckServiceConfig(text), "%s", text)
		require.NoError(t, takenByGRPC(t, text))
	}
}

// TestFindingString holds what a finding looks like.
func TestFindingString(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		configWith("maxAttempts", "\n\n\n1"): "line 4: methodConfig[0].retryPolicy.maxAttempts is 1: it must be 2 or more; write 2 to 5, or leave out retryPolicy for no retry",
		configWith("maxAttempts", ""):        "line 1: methodConfig[0].retryPolicy.maxAttempts: it is missing, and each field of a retryPolicy is required; add it",
		"[]":                                 "line 1: the config is []: it must be an object; write {…} with loadBalancingPolicy, loadBalancingConfig, methodConfig, retryThrottling and healthCheckConfig",
		"{":                                  "line 1: this is not JSON: unexpected end of JSON input",
	} {
		found := grpcretry.CheckServiceConfig(text)
		require.Len(t, found, 1)
		assert.Equal(t, want, found[0].String())
	}
}

// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// duration returns a duration of a service config.
func (c *configCheck) duration(at place) (time.Duration, bool) {
	said := at.string()
	seconds, ok := configSeconds(said)
	if !at.quoted() || !ok {
		c.refuse(at, "it must be a string of seconds with at most 9 decimals and an s", meantSeconds(at))
		return 0, false
	}
	if !plainSeconds(said) {
		c.warn(at, "grpc-go alone takes a duration in this form", "write digits, a point and digits if need be, and an s")
	}
	return seconds, true
}

// configSeconds reads a duration as grpc-go does: the digits before or after the point
// may be missing, either may have a sign, and what time.Duration cannot hold is cut.
func configSeconds(said string) (time.Duration, bool) {
	const most = 315_576_000_000 // ten thousand years, as in protobuf
	rest, ok := strings.CutSuffix(said, "s")
	rest, negative := strings.CutPrefix(rest, "-")
	whole, fraction, _ := strings.Cut(rest, ".")
	if !ok || whole+fraction == "" || len(fraction) > 9 {
		return 0, false
	}
	var seconds, nanos int64
	var err error
	if whole != "" {
		if seconds, err = strconv.ParseInt(whole, 10, 64); err != nil || seconds > most {
			return 0, false
		}
	}
	if fraction != "" {
		if nanos, err = strconv.ParseInt(fraction, 10, 64); err != nil {
			return 0, false
		}
		for range 9 - len(fraction) {
			nanos *= 10
		}
	}
	if negative {
		seconds, nanos = -seconds, -nanos
	}
	return saturate(seconds, nanos), true
}

// saturate is the sum of seconds and nanoseconds, or the nearest that there is.
func saturate(seconds, nanos int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Second)
	switch {
	case seconds > most:
		return math.MaxInt64
	case seconds < -most:
		return math.MinInt64
	}
	whole := seconds * int64(time.Second)
	switch {
	case whole > 0 && nanos > math.MaxInt64-whole:
		return math.MaxInt64
	case whole < 0 && nanos < math.MinInt64-whole:
		return math.MinInt64
	}
	return time.Duration(whole + nanos)
}

// plainSeconds says whether a duration has the form that all implementations read.
func plainSeconds(said string) bool {
	whole, fraction, point := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(said, "s"), "-"), ".")
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	return digits(whole) && (!point || digits(fraction))
}

// meantSeconds says how to write a duration that is in another form.
func meantSeconds(at place) string {
	const example = `write seconds, like "0.1s"`
	said := at.text
	switch {
	case len(said) > maxExcerpt:
		return example
	case at.quoted():
		said = at.string()
	}
	d, err := time.ParseDuration(said)
	if err != nil && said != "" && strings.Trim(said, "-.0123456789") == "" {
		d, err = time.ParseDuration(said + "s") // a number, with quotes or without
	}
	if err != nil {
		if f, wrong := strconv.ParseFloat(strings.TrimSuffix(said, "s"), 64); wrong == nil && math.Abs(f) < 1e9 {
			d, err = time.Duration(f*float64(time.Second)), nil
		}
	}
	if err != nil {
		return example
	}
	return fmt.Sprintf("write %q", strconv.FormatFloat(d.Seconds(), 'f', -1, 64)+"s")
}

// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
)

var errSurvivors = errors.New("too many mutants survive")

// report writes a table of the files, and the mutants that survived. It is an error
// if fewer than least percent of the mutants of a file were killed.
func report(out io.Writer, packages []*pack, least float64) error {
	var err error
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "mutants\tkilled\tsurvived\tpercent\t  file")
	for _, s := range mutated(packages) {
		all, killed := 0, 0
		for _, site := range s.sites {
			for _, m := range site.mutants {
				all++
				if m.killed {
					killed++
				}
			}
		}
		percent := 100.0
		if all > 0 {
			percent = 100 * float64(killed) / float64(all)
		}
		if percent < least {
			err = errSurvivors
		}
		fmt.Fprintf(table, "%d\t%d\t%d\t%.1f\t  %s\n", all, killed, all-killed, percent, s.name)
	}
	if failed := table.Flush(); failed != nil {
		return fmt.Errorf("report: %w", failed)
	}
	for _, p := range packages {
		for _, m := range p.mutants() {
			if !m.killed {
				fmt.Fprintln(out, m)
			}
		}
	}
	return err
}

// mutated lists the files that were to be mutated.
func mutated(packages []*pack) []*source {
	var list []*source
	for _, p := range packages {
		for _, s := range p.sources {
			if s.mutate {
				list = append(list, s)
			}
		}
	}
	return list
}

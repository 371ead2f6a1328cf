// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Command mutate changes code in one place at a time and checks that the tests
// notice. Every change is compiled into one test binary for each package, and an
// environment variable turns on one of them for each run.
//
//	go run ./tools/mutate [flags] file-or-package...
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options are the flags and arguments.
type options struct {
	dir      string // where the go command runs
	targets  []string
	also     string
	first    string
	least    float64
	parallel int
	timeout  time.Duration
	verbose  bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := parse(os.Args[1:], os.Stderr, func(o options) error { return run(ctx, o, os.Stdout, os.Stderr) })
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// parse reads the command line and calls next with it.
func parse(args []string, stderr io.Writer, next func(options) error) error {
	o := options{dir: "."}
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.also, "also", "", "a `package` whose tests are tried after those of the mutated package")
	flags.StringVar(&o.first, "first", "", "a `pattern` of tests that are tried before all others")
	flags.Float64Var(&o.least, "min", 0, "fail if fewer `percent` of the mutants of a file are killed")
	flags.IntVar(&o.parallel, "p", 2, "run so many tests at a `time`")
	flags.DurationVar(&o.timeout, "timeout", 90*time.Second, "kill tests that take longer, or ten times as long as else")
	flags.BoolVar(&o.verbose, "v", false, "tell of every mutant")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	o.targets = flags.Args()
	if len(o.targets) == 0 || o.parallel < 1 {
		flags.Usage()
		return errors.New("arguments: -p of at least 1 and a file or package are needed")
	}
	return next(o)
}

// run does everything, and leaves no process and no file behind.
func run(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	temp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return fmt.Errorf("temporary directory: %w", err)
	}
	defer func() {
		if ctx.Err() != nil {
			err = context.Cause(ctx) // and not what became of the command that it ended
		}
		err = errors.Join(err, os.RemoveAll(temp))
	}()
	bench := &bench{options: o, temp: temp, log: stderr}
	packages, err := load(ctx, bench)
	if err != nil {
		return err
	}
	found, dropped := 0, 0
	var mutants []*mutant
	for _, p := range packages {
		found += p.find(found)
		gone, err := p.instrument()
		if err != nil {
			return err
		}
		dropped += gone
		mutants = append(mutants, p.mutants()...)
	}
	fmt.Fprintf(stderr, "mutate: %d mutants; %d more do not compile and are dropped\n", len(mutants), dropped)
	if err := bench.build(ctx, packages); err != nil {
		return err
	}
	if err := bench.try(ctx, mutants); err != nil {
		return err
	}
	return report(stdout, packages, o.least)
}

// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// bench is where mutants are tried.
type bench struct {
	options

	temp  string
	log   io.Writer
	tests map[string]binary // by import path
	// alsoPath is the import path of the package whose tests are tried too.
	alsoPath string
}

// binary is the compiled tests of one package.
type binary struct {
	path  string // empty if the package has no tests
	dir   string
	limit time.Duration // of a run
}

// build compiles the tests and runs them with no mutant on.
func (b *bench) build(ctx context.Context, packages []*pack) error {
	overlay, err := b.overlay(packages)
	if err != nil {
		return err
	}
	var tested []listed
	for _, p := range packages {
		tested = append(tested, p.listed)
	}
	if b.also != "" {
		others, err := b.list(ctx, b.also)
		if err != nil {
			return err
		}
		b.alsoPath = others[0].ImportPath
		tested = append(tested, others[0])
	}
	b.tests = map[string]binary{}
	for _, l := range tested {
		if _, ok := b.tests[l.ImportPath]; ok {
			continue
		}
		bin := binary{path: filepath.Join(b.temp, fmt.Sprintf("%d.test", len(b.tests))), dir: l.Dir, limit: b.timeout}
		// Vet has its own opinion of mutants.
		compile := b.command(ctx, l.Dir, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", bin.path, ".")
		if _, err := b.output(compile); err != nil {
			return err
		}
		if _, err := os.Stat(bin.path); errors.Is(err, os.ErrNotExist) {
			bin.path = ""
		} else if bin.limit, err = b.sound(ctx, l.ImportPath, bin); err != nil {
			return err
		}
		b.tests[l.ImportPath] = bin
	}
	return nil
}

// sound checks that the tests pass while no mutant is on, and returns how long they
// may take with one: many times as long, for the machine may be busier by then.
func (b *bench) sound(ctx context.Context, path string, bin binary) (time.Duration, error) {
	start := time.Now()
	if out, err := b.output(b.test(ctx, bin, 0, "")); err != nil {
		return 0, fmt.Errorf("without a mutant the tests of %s fail: %w\n%s", path, err, out)
	}
	took := time.Since(start)
	fmt.Fprintf(b.log, "mutate: the tests of %s pass in %v\n", path, took.Round(time.Millisecond))
	return min(b.timeout, max(20*time.Second, 10*took)), nil
}

// try runs the tests for every mutant.
func (b *bench) try(ctx context.Context, mutants []*mutant) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	next, ended := 0, 0
	var workers sync.WaitGroup
	for range b.parallel {
		workers.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(mutants) || ctx.Err() != nil {
					return
				}
				start := time.Now()
				how, err := b.kill(ctx, mutants[i])
				if err != nil {
					cancel(err)
					return
				}
				mu.Lock()
				ended++
				b.progress(mutants[i], how, time.Since(start), ended, len(mutants))
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// progress tells how one mutant ended.
func (b *bench) progress(m *mutant, how string, took time.Duration, ended, all int) {
	if b.verbose || !m.killed || ended%50 == 0 || ended == all {
		fmt.Fprintf(b.log, "mutate: %d/%d %s after %v: %v\n", ended, all, how, took.Round(time.Millisecond), m)
	}
}

// kill runs the tests with one mutant on until one of them fails, and says how the
// mutant fared.
func (b *bench) kill(ctx context.Context, m *mutant) (string, error) {
	paths := []string{m.pack.ImportPath}
	if b.alsoPath != "" && b.alsoPath != m.pack.ImportPath {
		paths = append(paths, b.alsoPath)
	}
	patterns := []string{""}
	if b.first != "" {
		patterns = []string{b.first, ""}
	}
	for _, path := range paths {
		bin := b.tests[path]
		if bin.path == "" {
			continue
		}
		for _, pattern := range patterns {
			how, err := b.attempt(ctx, bin, m.number, pattern)
			if err != nil {
				return "", err
			}
			if how != "" {
				m.killed = true
				return how, nil
			}
		}
	}
	return "survived", nil
}

// attempt runs one test binary, and says how it noticed the mutant; nothing if it
// did not.
func (b *bench) attempt(ctx context.Context, bin binary, number int, pattern string) (string, error) {
	bound, cancel := context.WithTimeout(ctx, bin.limit+grace)
	defer cancel()
	cmd := b.test(bound, bin, number, pattern)
	start := time.Now()
	err := b.wait(cmd)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err == nil:
		return "", nil
	case time.Since(start) >= bin.limit:
		return "timed out", nil
	case errors.As(err, &exit):
		return "killed", nil
	default:
		return "", fmt.Errorf("run the tests: %w", err)
	}
}

// grace is what a test gets to end by itself after its timeout.
const grace = 5 * time.Second

// test returns the command that runs a test binary with a mutant on.
func (b *bench) test(ctx context.Context, bin binary, number int, pattern string) *exec.Cmd {
	cmd := b.command(ctx, bin.dir, bin.path, "-test.failfast", "-test.short=false",
		"-test.timeout="+bin.limit.String(), "-test.run="+pattern)
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", variable, number))
	return cmd
}

// command returns a command in a process group of its own, whose temporary files
// are among ours.
func (b *bench) command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // the go command, and tests that it compiled
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+b.temp, "GOTMPDIR="+b.temp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = grace
	return cmd
}

// output runs a command and returns what it wrote to its standard output. The
// error has what it wrote to the other.
func (b *bench) output(cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := b.wait(cmd); err != nil {
		return stdout.Bytes(), fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// wait runs a command and ends what it leaves of its group.
func (b *bench) wait(cmd *exec.Cmd) error {
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	return err
}

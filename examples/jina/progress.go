// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/seed98143e88/grpcretry/jina"
)

// progress shows how far a Post is: on a terminal in one line that is written again and
// again, elsewhere in a line for each tenth.
type progress struct {
	out      io.Writer
	terminal bool
	doing    string
	tenths   int  // that were shown
	open     bool // a line is not at its end
}

func newProgress(out io.Writer, doing string) *progress {
	return &progress{out: out, terminal: isTerminal(out), doing: doing}
}

// isTerminal tells whether lines can be written again.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// show is called after each response.
func (p *progress) show(done jina.Progress, kills int) {
	tenths := 10
	if done.Total > 0 {
		tenths = 10 * done.Documents / done.Total
	}
	switch {
	case p.terminal:
		fmt.Fprint(p.out, "\r")
		p.open = true
	case tenths == p.tenths:
		return
	}
	p.tenths = tenths
	fmt.Fprintf(p.out, "%s: %*d of %d, the gateway was killed %d times",
		p.doing, len(strconv.Itoa(done.Total)), done.Documents, done.Total, kills)
	if !p.terminal {
		fmt.Fprintln(p.out)
	}
}

// end is called when there is no more to show.
func (p *progress) end() {
	if p.open {
		fmt.Fprintln(p.out)
		p.open = false
	}
}

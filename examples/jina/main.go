// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Jina indexes a folder of text files through a gateway of Jina's, and searches it, while
// the gateway is killed under it: twice under the one stream that indexes, and twice
// under the unary calls that search. Every file must be in the index as its content says,
// and every result must be what the program counts itself. Without a folder it makes one
// up, and removes it.
//
//	go run ./examples/jina [-dir folder]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
)

// patience bounds the whole program.
const patience = 2 * time.Minute

func main() {
	dir := flag.String("dir", "", "the folder whose text files are indexed (default one that is made up)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *dir)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "jina:", err)
		os.Exit(1)
	}
}

// run indexes and searches a folder; one that it makes up if there is none.
func run(ctx context.Context, out io.Writer, dir string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if dir == "" {
		if dir, err = writeSample(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	files, err := openFolder(dir, out)
	if err != nil {
		return err
	}
	defer files.close()
	fmt.Fprintf(out, "%d text files\n", len(files.names))

	index := newIndex()
	gateway, err := startGateway(index, cancel)
	if err != nil {
		return err
	}
	defer gateway.close()
	client, err := dial(gateway, out)
	if err != nil {
		return err
	}
	defer client.close()
	indexed, err := client.index(ctx, files)
	if err != nil {
		return errors.Join(err, gateway.failure())
	}
	// What the files say is read from them anew, past all that is to be checked.
	truth, err := files.count()
	if err != nil {
		return err
	}
	found, err := client.search(ctx, truth.queries())
	if err != nil {
		return errors.Join(err, gateway.failure())
	}
	return report(out, truth, index, indexed, found)
}

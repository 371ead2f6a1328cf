// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"unicode/utf8"

	"github.com/seed98143e88/grpcretry/jina"
)

// What is kept of a folder is bounded: the gateway's records have all that it was sent.
const (
	maxFile   = 1 << 20  // bytes; a larger file is skipped
	maxFolder = 16 << 20 // bytes; a larger folder is refused
)

// folder has the text files of a folder and of those in it.
type folder struct {
	root  *os.Root
	names []string // relative, with slashes; these are the ids of the documents
	size  int64
	drawn int // documents, by the Post that indexes
}

// openFolder lists the text files, and says what it skips.
func openFolder(dir string, out io.Writer) (*folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open the folder: %w", err)
	}
	f := &folder{root: root}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil && name == "." {
			return err
		}
		if err == nil {
			err = f.consider(name, entry)
		}
		if err != nil {
			fmt.Fprintf(out, "skipping %q: %v\n", name, err)
		}
		if f.size > maxFolder {
			return fmt.Errorf("it has more than %d bytes of text", maxFolder)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot list the folder: %w", err), root.Close())
	}
	return f, nil
}

// consider takes a file into the list, or says why not.
func (f *folder) consider(name string, entry fs.DirEntry) error {
	switch {
	case entry.IsDir():
		return nil
	case !entry.Type().IsRegular():
		return errors.New("it is not a regular file")
	case !utf8.ValidString(name):
		return errors.New("its name is not valid UTF-8")
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	if info.Size() > maxFile {
		return fmt.Errorf("it has more than %d bytes", maxFile)
	}
	if _, err := f.read(name); err != nil {
		return err
	}
	f.names = append(f.names, name)
	f.size += info.Size()
	return nil
}

// read returns the text of a file.
func (f *folder) read(name string) (string, error) {
	text, err := f.root.ReadFile(name)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		return "", errors.New("it is not a text in UTF-8")
	}
	return string(text), nil
}

// documents gives each file once. A file is read when the stream has room for it, and
// never again: what a broken stream is owed, the Post has kept.
func (f *folder) documents() jina.Input {
	return jina.Generator(func(context.Context) iter.Seq2[jina.Document, error] {
		return func(yield func(jina.Document, error) bool) {
			for _, name := range f.names {
				text, err := f.read(name)
				if err != nil {
					yield(nil, fmt.Errorf("cannot read %q: %w", name, err))
					return
				}
				f.drawn++
				if !yield(jina.Text(name, text)) {
					return
				}
			}
		}
	}).WithTotal(len(f.names))
}

// count reads all files anew, and counts their words.
func (f *folder) count() (truth, error) {
	t := truth{}
	for _, name := range f.names {
		text, err := f.read(name)
		if err != nil {
			return nil, fmt.Errorf("cannot read %q: %w", name, err)
		}
		if t[name] = nil; text != "" {
			t[name] = occurrences(text)
		}
	}
	return t, nil
}

func (f *folder) close() { _ = f.root.Close() } // it was only read from

// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// The folder that is made up.
const (
	sampleFiles   = 200
	sampleWords   = 40 // of a file
	emptyFile     = 123
	filesOfFolder = 50
)

// writeSample makes up a folder of small text files, always the same, one of which is
// empty. The caller removes it.
func writeSample() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "jina-*"); err != nil {
		return "", err
	}
	random := rand.New(rand.NewPCG(1, 2))
	for number := range sampleFiles {
		text := ""
		if number != emptyFile {
			text = sentence(random)
		}
		path := filepath.Join(dir, fmt.Sprintf("part %d", number/filesOfFolder), fmt.Sprintf("%03d.txt", number))
		if err := writeFile(path, text); err != nil {
			return "", errors.Join(err, os.RemoveAll(dir))
		}
	}
	return dir, nil
}

func writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// sentence makes up words of two syllables, some of which are frequent.
func sentence(random *rand.Rand) string {
	syllables := []string{"ka", "lo", "mi", "nu", "pe", "ra", "so", "ti", "vu", "ze"}
	words := make([]string, sampleWords)
	for i := range words {
		first := random.IntN(1 + random.IntN(len(syllables)))
		words[i] = syllables[first] + syllables[random.IntN(len(syllables))]
	}
	return strings.Join(words, " ") + ".\n"
}

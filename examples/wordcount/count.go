package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/lessor-dev/lessor/worker"
)

// linesPerSave is the number of lines after which the count so far is saved, so that the next
// attempt need not count from the beginning.
const linesPerSave = 100_000

// linesPerLook is the number of lines after which the handler looks whether it must stop.
const linesPerLook = 1_000

// maxLine is the longest line that is counted, in bytes.
const maxLine = 64 << 20

// count handles one task: its payload is the name of a file, its output the number of words.
func count(ctx context.Context, t *worker.Task) ([]byte, error) {
	file, err := os.Open(string(t.Payload))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, worker.WithCategory(worker.DataQuality, err) // another attempt would not find the file either
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	words, err := countWords(ctx, t, file)
	if err != nil {
		return nil, err
	}
	return []byte(strconv.Itoa(words)), nil
}

func countWords(ctx context.Context, t *worker.Task, file io.Reader) (int, error) {
	skip, words := parse(t.Checkpoint)
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		if n > skip {
			words += len(strings.Fields(lines.Text()))
		}
		if n%linesPerLook == 0 && ctx.Err() != nil {
			// another worker goes on from here; if that fails, from the last save
			if n > skip && errors.Is(context.Cause(ctx), worker.ErrDraining) {
				_ = save(context.WithoutCancel(ctx), t, n, words)
			}
			return 0, context.Cause(ctx)
		}
		if n > skip && n%linesPerSave == 0 {
			t.Progress(0, fmt.Sprintf("%d lines", n), "counting")
			// save fails if the lease is lost. Then another attempt counts, and the result of this
			// one would be discarded.
			if err := save(ctx, t, n, words); err != nil {
				return 0, err
			}
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return 0, worker.WithCategory(worker.DataQuality, err) // another attempt would find the same line
	}
	return words, lines.Err()
}

// save makes a checkpoint.
func save(ctx context.Context, t *worker.Task, lines, words int) error {
	return t.SaveCheckpoint(ctx, fmt.Appendf(nil, "%d %d", lines, words))
}

// parse reads a checkpoint: the number of lines that were counted, and of words in them. The first
// attempt has no checkpoint.
func parse(checkpoint []byte) (lines, words int) {
	_, _ = fmt.Sscanf(string(checkpoint), "%d %d", &lines, &words)
	return lines, words
}

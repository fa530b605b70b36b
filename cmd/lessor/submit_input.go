package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	"golang.org/x/sync/semaphore"
)

const (
	// maxSubmitLine is the longest line, in bytes. Only the coordinator knows its limit of a
	// payload.
	maxSubmitLine = 1 << 20
	// maxReadAhead is how many bytes of lines are read ahead.
	maxReadAhead = 2 * maxSubmitLine
)

// inputLine is a line of the input, or the error with which the input ends: io.EOF, if all is well.
type inputLine struct {
	number int64
	text   []byte
	err    error
}

// lineInput has the lines that were read ahead.
type lineInput struct {
	lines chan inputLine
	room  *semaphore.Weighted // bytes for them
}

// readLines reads lines until the input or ctx ends. It leaves out empty ones. Only a goroutine of
// its own can wait for a terminal or a pipe.
func readLines(ctx context.Context, in io.Reader) *lineInput {
	read := &lineInput{lines: make(chan inputLine, maxSubmitBatch), room: semaphore.NewWeighted(maxReadAhead)}
	send := func(line inputLine) bool {
		if read.room.Acquire(ctx, int64(len(line.text))) != nil {
			return false
		}
		select {
		case read.lines <- line:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		scan := bufio.NewScanner(in)
		scan.Buffer(nil, maxSubmitLine+1)
		scan.Split(splitLines)
		number := int64(0)
		for scan.Scan() {
			if number++; len(scan.Bytes()) > 0 && !send(inputLine{number: number, text: bytes.Clone(scan.Bytes())}) {
				return
			}
		}
		send(inputLine{err: endOfLines(scan.Err(), number)})
	}()
	return read
}

// splitLines splits at newlines and nothing else: bufio.ScanLines would take a carriage return out
// of the payload.
func splitLines(data []byte, atEOF bool) (advance int, line []byte, err error) {
	if end := bytes.IndexByte(data, '\n'); end >= 0 {
		return end + 1, data[:end], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

func endOfLines(err error, read int64) error {
	switch {
	case err == nil:
		return io.EOF
	case errors.Is(err, bufio.ErrTooLong):
		return fail(exitUsage, "write the data to files and submit their names",
			"line %d has more than %d bytes", read+1, maxSubmitLine)
	}
	return fail(exitUsage, "", "--lines: %v", err)
}

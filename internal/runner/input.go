package runner

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/lessor-dev/lessor/internal/await"
	"github.com/lessor-dev/lessor/internal/diskroom"
	"github.com/lessor-dev/lessor/internal/durable"
)

// MaxLine is the longest line, in bytes: the payload limit of a coordinator (S7).
const MaxLine = 1 << 20

// Input identifies the lines of a run.
type Input struct {
	Lines  int64  `json:"lines"`
	SHA256 string `json:"sha256"` // of the lines, each with its separator
}

// LineTooLongError names the first line that is over MaxLine.
type LineTooLongError struct{ Line int64 }

func (e *LineTooLongError) Error() string {
	return fmt.Sprintf("line %d has more than %d bytes", e.Line, MaxLine)
}

// NULError names the first line with a NUL byte, which the argument of a command cannot contain.
type NULError struct{ Line int64 }

func (e *NULError) Error() string {
	return fmt.Sprintf("line %d contains a NUL byte, which an argument of a command cannot", e.Line)
}

// InputError means that the input cannot be read.
type InputError struct{ Err error }

func (e *InputError) Error() string { return "input: " + e.Err.Error() }

// Unwrap returns the reason.
func (e *InputError) Unwrap() error { return e.Err }

// separators of lines.
const (
	newline = '\n'
	null    = 0
)

// separator of the lines of an input.
func separator(nulls bool) byte {
	if nulls {
		return null
	}
	return newline
}

// copyInput copies the lines of r to the file at path, durably. It leaves out empty lines, as xargs
// does, unless the lines are separated by NUL. If ctx ends, it returns ctx's cause. It leaves no
// file behind then, although r is perhaps still being read: only copyInput itself makes and removes
// files.
func copyInput(ctx context.Context, path string, r io.Reader, nulls bool) (Input, error) {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return Input{}, err
	}
	in, err := awaitInput(ctx, func() (Input, error) {
		in, err := copyLines(diskroom.NewWriter(f), r, nulls)
		if err == nil {
			err = f.Sync() // here, since a large file may take long
		}
		return in, err
	})
	if err != nil {
		return Input{}, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return in, durable.Keep(f, path)
}

// awaitInput runs read, but stops waiting for it when ctx ends: a read from a terminal or pipe
// cannot be interrupted.
func awaitInput(ctx context.Context, read func() (Input, error)) (Input, error) {
	var in Input
	var err error
	if !await.Return(ctx, 0, func() { in, err = read() }) {
		return Input{}, context.Cause(ctx)
	}
	return in, err
}

// copyLines stops at the first write that fails: an input without an end would otherwise be read
// for ever.
func copyLines(w io.Writer, r io.Reader, nulls bool) (Input, error) {
	digest := sha256.New()
	to := bufio.NewWriter(io.MultiWriter(w, digest))
	from := newLineReader(r, nulls)
	for {
		line, err := from.next()
		if errors.Is(err, io.EOF) {
			err = to.Flush()
			return Input{Lines: from.number, SHA256: hex.EncodeToString(digest.Sum(nil))}, err
		}
		if err != nil {
			return Input{}, err
		}
		_, _ = to.Write(line) // WriteByte returns the error, too
		if err := to.WriteByte(separator(nulls)); err != nil {
			return Input{}, err
		}
	}
}

// lineReader reads the lines of an input.
type lineReader struct {
	r         *bufio.Reader
	separator byte
	number    int64 // number of the newest line: 1, 2, 3 ...
	line      []byte
}

func newLineReader(r io.Reader, nulls bool) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), separator: separator(nulls)}
}

// next returns the next line or io.EOF. The line is valid until the next call.
func (l *lineReader) next() ([]byte, error) {
	for {
		line, err := l.raw()
		if err != nil {
			return nil, err
		}
		if len(line) > 0 || l.separator == null {
			l.number++
			return line, nil
		}
	}
}

// raw returns the next line, empty or not, without its separator. The last line need not have a
// separator.
func (l *lineReader) raw() ([]byte, error) {
	l.line = l.line[:0]
	for {
		piece, err := l.r.ReadSlice(l.separator)
		l.line = append(l.line, piece...)
		switch {
		case err == nil:
			return l.checked(l.line[:len(l.line)-1])
		case errors.Is(err, io.EOF) && len(l.line) > 0:
			return l.checked(l.line)
		case errors.Is(err, io.EOF):
			return nil, err
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, &InputError{Err: err}
		case len(l.line) > MaxLine:
			return l.checked(l.line)
		}
	}
}

// checked looks for a NUL first: all lines together, if they end with NUL and nobody said so, may
// also be too long for one.
func (l *lineReader) checked(line []byte) ([]byte, error) {
	switch {
	case bytes.IndexByte(line, null) >= 0:
		return nil, &NULError{Line: l.number + 1}
	case len(line) > MaxLine:
		return nil, &LineTooLongError{Line: l.number + 1}
	}
	return line, nil
}

// eachLine visits the lines of the input. A line is valid until the next one.
func (j *Job) eachLine(visit func(number int64, line []byte) error) error {
	f, err := os.Open(j.path("input"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := newLineReader(f, j.manifest.Options.Nulls)
	for {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := visit(lines.number, line); err != nil {
			return err
		}
	}
}

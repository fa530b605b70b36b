package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	os.Exit(run(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// streams are what a command reads and writes: data goes to out, everything for people to err.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// note writes a line for people, and ignores errors.
func (s streams) note(format string, args ...any) {
	_, _ = fmt.Fprintf(s.err, format+"\n", args...)
}

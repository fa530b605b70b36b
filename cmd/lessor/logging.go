package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/term"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// logging are the flags of commands that log.
type logging struct {
	Level  string `enum:"debug,info,warn,error" default:"info" placeholder:"LEVEL" help:"Lowest level that is logged: debug, info, warn or error."`
	Format string `enum:"auto,json,text" default:"auto" placeholder:"FORMAT" help:"Format of the log: json, text, or auto, which is text on a terminal and json elsewhere."`
}

// logger returns a logger that writes to standard error. From then on, nothing that the command
// writes there waits for a reader, and the error with which it ends is in the log, too: whoever
// watches the log looks there for what is worst. On a terminal that would only repeat the lines for
// people. With --log-format json, those lines are left out, so that programs can read all of the
// log.
func (l logging) logger(a *app) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return nil, fail(exitUsage, "", "--log-level: %v", err)
	}
	terminal := isTerminal(a.err)
	text := l.Format == "text" || l.Format == "auto" && terminal
	handler := func(w io.Writer) slog.Handler {
		if text {
			return slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})
		}
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: readable})
	}
	a.log = newLogWriter(a.err, handler)
	a.err = a.log
	log := slog.New(handler(a.log))
	if a.alone = l.Format == "json"; a.alone || !terminal {
		a.last = log
	}
	return log, nil
}

// readable gives JSON the same words as the text form: 1.5s and FAILED, not 1500000000 and 7.
func readable(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case time.Duration:
		return slog.String(a.Key, v.String())
	case protoreflect.Enum:
		return slog.String(a.Key, fmt.Sprint(v))
	}
	return a
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

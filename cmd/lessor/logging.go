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
	Level  string `enum:"debug,info,warn,error" default:"info" help:"Lowest level that is logged: debug, info, warn or error."`
	Format string `enum:"auto,json,text" default:"auto" help:"Format of the log: json, text, or auto, which is text on a terminal and json elsewhere."`
}

// logger returns a logger that writes to w.
func (l logging) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return nil, fail(exitUsage, "", "--log-level: %v", err)
	}
	opts := &slog.HandlerOptions{Level: level}
	if l.Format == "text" || l.Format == "auto" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, opts)), nil
	}
	opts.ReplaceAttr = readable
	return slog.New(slog.NewJSONHandler(w, opts)), nil
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

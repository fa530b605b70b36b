package main

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

// logging are the flags of commands that log.
type logging struct {
	Level  string `enum:"debug,info,warn,error" default:"info" help:"Least level that is logged: debug, info, warn or error."`
	Format string `enum:"auto,json,text" default:"auto" help:"Form of the log: json, text, or auto, which is text on a terminal."`
}

// logger writes to w.
func (l logging) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return nil, fail(exitUsage, "", "--log-level: %v", err)
	}
	opts := &slog.HandlerOptions{Level: level}
	if l.Format == "text" || l.Format == "auto" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, opts)), nil
	}
	return slog.New(slog.NewJSONHandler(w, opts)), nil
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

//go:build !unix

package main

import "log/slog"

// openFiles returns how many files the process may have open; 0 means that it is not known.
func openFiles() int { return 0 }

// warnExposed does nothing: the mode of a file does not tell here who may read it.
func warnExposed(*slog.Logger, string, string) {}

package producer

import "log/slog"

// Config holds the settings of a client that have a default. The zero Config is usable.
type Config struct {
	// Logger gets the client's own messages: that calls wait, because the coordinator cannot be
	// reached or a stream to it was lost, and why; at most one a minute. They contain nothing of a
	// task. Default: slog.Default().
	Logger *slog.Logger
}

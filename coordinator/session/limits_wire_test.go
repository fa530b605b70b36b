package session_test

import "time"

// Limits of package session that the tests need; docs/protocol.md lists all of them.
const (
	handshakeWithin  = 10 * time.Second
	defaultHeartbeat = 10 * time.Second
	defaultIdle      = time.Minute
	defaultSend      = 30 * time.Second
	keepFor          = time.Minute
	tokenLife        = 2 * time.Hour
	beatTakes        = time.Millisecond
	leaseTakes       = 50 * time.Microsecond
	beatsAhead       = 2 * time.Second
	beatsJudged      = 50 * time.Millisecond
	resendBase       = 200 * time.Millisecond
	resendMost       = 5 * time.Second
	resendTries      = 6
	maxRetained      = 256
	maxRecent        = 1024
	maxDispatch      = 2 << 20
)

// Limits of package coordinator.
const (
	pingAfter   = 20 * time.Second
	pingTimeout = 10 * time.Second
	lastWords   = 500 * time.Millisecond // for the last answers, at a stop
	minMessage  = 4 << 20                // bytes that a message may have, at least
)

// Package harness runs the real lessor for the tests of the whole system. It builds the binary once
// for each package of tests, starts processes, reads what they print, and ends them by their pid.
// It fails a test whose process printed a panic or a data race.
//
// No test asserts how long something took. Patience only bounds the waits, so that a test fails
// instead of hanging.
package harness

import "time"

// Patience is how long a test waits for anything before it fails.
const Patience = 60 * time.Second

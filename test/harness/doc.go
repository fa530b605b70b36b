// Package harness runs the real lessor for the tests of the whole system: it builds the binary once for each package of
// tests, starts processes, reads what they print, ends them by their pid, and looks for what none of them may ever print:
// a panic or a data race.
//
// Nothing in here waits for a time to pass. Patience bounds every wait, so that a test fails instead of hanging; how long
// something took is never looked at.
package harness

import "time"

// Patience is how long anything may take before a test gives up.
const Patience = 60 * time.Second

// Package flawed checks `lessor worker check` (package workercheck) with workers that keep the
// rules, and with workers that have one flaw each. The workers are processes, and nothing runs on
// fake time, so the tests are behind the tag faults.
package flawed

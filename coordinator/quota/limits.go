package quota

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Limit names one of the limits.
type Limit uint8

// The limits. Calls, Submits and Frames are rates, the others are counts.
const (
	Calls   Limit = iota // calls that begin
	Submits              // tasks that are submitted
	Frames               // frames of sessions

	Sessions // open sessions of workers
	Streams  // other streams that are open, and requests for work that wait
	Watches  // watches, which also count as Streams
	Waits    // tasks that streams wait for
	Tasks    // tasks that have not ended; only tenants have this limit

	numRates  = int(Frames) + 1
	numLimits = int(Tasks) + 1
)

var names = [numLimits]string{
	Calls:    "calls",
	Submits:  "submits",
	Frames:   "frames",
	Sessions: "sessions",
	Streams:  "streams",
	Watches:  "watches",
	Waits:    "waits",
	Tasks:    "tasks",
}

// String returns the name of the limit in settings, errors and metrics.
func (l Limit) String() string { return names[l] }

// All lists the limits.
func All() []Limit { return []Limit{Calls, Submits, Frames, Sessions, Streams, Watches, Waits, Tasks} }

// IsRate reports whether the limit is a rate; else it is a count.
func (l Limit) IsRate() bool { return int(l) < numRates }

// Unlimited is a count without a limit.
const Unlimited = math.MaxInt

// Limits are the limits of a tenant, or of each of its credentials. A field that is zero takes its
// default.
type Limits struct {
	Calls, Submits, Frames                   Rate
	Sessions, Streams, Watches, Waits, Tasks int
}

// Defaults for a tenant. Rates and Tasks have no default limit, because the right one depends on
// the machine and its disk. Single credentials have none.
const (
	defaultSessions = 20_000
	defaultStreams  = 20_000
	defaultWatches  = 10_000
	defaultWaits    = 100_000
)

// Set sets one limit.
func (l *Limits) Set(which Limit, r Rate, count int) {
	switch which {
	case Calls:
		l.Calls = r
	case Submits:
		l.Submits = r
	case Frames:
		l.Frames = r
	case Sessions:
		l.Sessions = count
	case Streams:
		l.Streams = count
	case Watches:
		l.Watches = count
	case Waits:
		l.Waits = count
	case Tasks:
		l.Tasks = count
	}
}

func (l *Limits) rate(which Limit) Rate { return [numRates]Rate{l.Calls, l.Submits, l.Frames}[which] }

func (l *Limits) count(which Limit) int {
	return [...]int{l.Sessions, l.Streams, l.Watches, l.Waits, l.Tasks}[int(which)-numRates]
}

// text returns the value of a limit in the form that settings use.
func (l *Limits) text(which Limit) string {
	if which.IsRate() {
		return l.rate(which).String()
	}
	if n := l.count(which); n != Unlimited {
		return strconv.Itoa(n)
	}
	return "none"
}

// or returns l with its zero fields taken from others.
func (l *Limits) or(others *Limits) *Limits {
	return &Limits{
		Calls:    cmp.Or(l.Calls, others.Calls),
		Submits:  cmp.Or(l.Submits, others.Submits),
		Frames:   cmp.Or(l.Frames, others.Frames),
		Sessions: cmp.Or(l.Sessions, others.Sessions),
		Streams:  cmp.Or(l.Streams, others.Streams),
		Watches:  cmp.Or(l.Watches, others.Watches),
		Waits:    cmp.Or(l.Waits, others.Waits),
		Tasks:    cmp.Or(l.Tasks, others.Tasks),
	}
}

// Ranges of the rates that may be set.
const (
	leastRate = 1.0 / (24 * 60 * 60) // one a day
	mostRate  = 1_000_000
	mostBurst = 1_000_000
)

func (l *Limits) validate() (errs []error) {
	for which := range Limit(numRates) {
		r := l.rate(which)
		if r.PerSecond != 0 && !math.IsInf(r.PerSecond, 1) && !(r.PerSecond >= leastRate && r.PerSecond <= mostRate) {
			errs = append(errs, fmt.Errorf("the quota of %v is %v a second; the range is one a day to %d a second",
				which, r.PerSecond, mostRate))
		}
		if r.Burst > mostBurst || r.PerSecond == 0 && r.Burst != 0 {
			errs = append(errs, fmt.Errorf("the quota of %v has a burst of %d; the range is 1 to %d, and a burst needs a rate",
				which, r.Burst, mostBurst))
		}
	}
	for which := Limit(numRates); int(which) < numLimits; which++ {
		if l.count(which) < 0 {
			errs = append(errs, fmt.Errorf("the quota of %v is %d; it must be at least 1", which, l.count(which)))
		}
	}
	return errs
}

// validateCredential is validate for the limits of a credential.
func (l *Limits) validateCredential() (errs []error) {
	if l.Tasks != 0 {
		errs = append(errs, errors.New("the quota of tasks applies to tenants, not to credentials"))
	}
	return append(errs, l.validate()...)
}

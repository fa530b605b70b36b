package quota

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
)

// Limit is one of the limits.
type Limit uint8

// The limits. The first are rates, the others counts.
const (
	Calls   Limit = iota // calls that begin
	Submits              // tasks that are submitted
	Frames               // frames of sessions

	Sessions // open sessions of workers
	Streams  // other streams that are open, and requests for work that wait
	Watches  // of those: watches
	Tasks    // tasks that have not ended; of tenants alone

	numRates  = int(Frames) + 1
	numLimits = int(Tasks) + 1
)

var names = [numLimits]string{
	Calls: "calls", Submits: "submits", Frames: "frames", Sessions: "sessions", Streams: "streams", Watches: "watches", Tasks: "tasks",
}

// String is the name that settings, errors and metrics have.
func (l Limit) String() string { return names[l] }

// All lists the limits.
func All() []Limit { return []Limit{Calls, Submits, Frames, Sessions, Streams, Watches, Tasks} }

// IsRate tells rates from counts.
func (l Limit) IsRate() bool { return int(l) < numRates }

// Unlimited is a count without a limit.
const Unlimited = math.MaxInt

// Limits of a tenant, or of each of its credentials. A field that is zero takes its default.
type Limits struct {
	Calls, Submits, Frames            Rate
	Sessions, Streams, Watches, Tasks int
}

// Defaults of a tenant. Rates depend on the machine and tasks on the disk, so that neither is limited; nor is there one for single credentials.
const (
	defaultSessions = 20_000
	defaultStreams  = 20_000
	defaultWatches  = 10_000
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
	case Tasks:
		l.Tasks = count
	}
}

func (l *Limits) rate(which Limit) Rate { return [numRates]Rate{l.Calls, l.Submits, l.Frames}[which] }

func (l *Limits) count(which Limit) int {
	return [...]int{l.Sessions, l.Streams, l.Watches, l.Tasks}[int(which)-numRates]
}

// text is a limit as settings have it.
func (l *Limits) text(which Limit) string {
	if which.IsRate() {
		return l.rate(which).String()
	}
	if n := l.count(which); n != Unlimited {
		return strconv.Itoa(n)
	}
	return "none"
}

// or is l with what it lacks taken from others.
func (l *Limits) or(others *Limits) *Limits {
	return &Limits{
		Calls: cmp.Or(l.Calls, others.Calls), Submits: cmp.Or(l.Submits, others.Submits), Frames: cmp.Or(l.Frames, others.Frames),
		Sessions: cmp.Or(l.Sessions, others.Sessions), Streams: cmp.Or(l.Streams, others.Streams),
		Watches: cmp.Or(l.Watches, others.Watches), Tasks: cmp.Or(l.Tasks, others.Tasks),
	}
}

// Ranges of what may be set.
const (
	leastRate = 1.0 / (24 * 60 * 60) // one a day
	mostRate  = 1_000_000
	mostBurst = 1_000_000
)

func (l *Limits) validate() error {
	for which := range Limit(numRates) {
		r := l.rate(which)
		if r.PerSecond != 0 && !math.IsInf(r.PerSecond, 1) && !(r.PerSecond >= leastRate && r.PerSecond <= mostRate) {
			return fmt.Errorf("the quota of %v is %v a second; the range is one a day to %d a second", which, r.PerSecond, mostRate)
		}
		if r.Burst > mostBurst || r.PerSecond == 0 && r.Burst != 0 {
			return fmt.Errorf("the quota of %v has a burst of %d; the range is 1 to %d, beside a rate", which, r.Burst, mostBurst)
		}
	}
	for which := Limit(numRates); int(which) < numLimits; which++ {
		if l.count(which) < 0 {
			return fmt.Errorf("the quota of %v is %d; the least is 1", which, l.count(which))
		}
	}
	return nil
}

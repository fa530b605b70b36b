package worker

import (
	"maps"
	"slices"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// SetConcurrency changes Config.Concurrency, at any time: 0 to 10,000; with 0 the worker takes no
// new work. If more than n handlers run, they go on. The error says that n is out of range; then
// nothing has changed.
func (w *Worker) SetConcurrency(n int) error {
	if err := checkRange("SetConcurrency: the limit", n, 0, maxParallel); err != nil {
		return err
	}
	w.lock()
	defer w.unlock()
	w.mu.slots.limit = n
	w.mu.slots.assignWaiting()
	w.wakeWriter()
	return nil
}

// SetTypeLimits replaces Config.PerTypeLimits, at any time: 0 to 10,000 for each of at most 1,000
// types. If more handlers of a type run than its limit, they go on. The error says what is out of
// range; then nothing has changed. A type without a handler is logged as a warning.
func (w *Worker) SetTypeLimits(limits map[string]int) error {
	if err := checkTypeLimits("SetTypeLimits", limits); err != nil {
		return err
	}
	w.lock()
	defer w.unlock()
	w.mu.slots.typeLimits = maps.Clone(limits)
	w.mu.slots.assignWaiting()
	w.wakeWriter()
	if w.mu.runCalled { // before, handlers may be missing
		w.warnOfLimitsLocked()
	}
	return nil
}

// warnOfLimitsLocked logs the types that have a limit and no handler: perhaps the type that is
// meant has another name, and so no limit.
func (w *Worker) warnOfLimitsLocked() {
	for _, t := range slices.Sorted(maps.Keys(w.mu.slots.typeLimits)) {
		if w.handlerFor(t) == nil {
			w.deferLocked(func() { w.log.Warn("a type has a limit, but no handler", "type", t) })
		}
	}
}

// capacity is how many handlers the worker may run: in all, and of each type that has a limit.
type capacity struct {
	slots      int
	typeLimits map[string]int
}

// capacityLocked returns the present capacity. Stuck handlers, which still run without a lease, are
// subtracted, in all and from the limit of their type.
func (w *Worker) capacityLocked() capacity {
	c := capacity{slots: w.mu.slots.limit, typeLimits: w.mu.slots.typeLimits}
	if len(w.mu.stuck) == 0 {
		return c
	}
	c.typeLimits = maps.Clone(c.typeLimits)
	for typ, n := range w.mu.stuck {
		c.slots = max(c.slots-n, 0)
		if limit, limited := c.typeLimits[typ]; limited {
			c.typeLimits[typ] = max(limit-n, 0)
		}
	}
	return c
}

// equal reports whether c and other are the same, so that there is nothing to send.
func (c capacity) equal(other capacity) bool {
	return c.slots == other.slots && maps.Equal(c.typeLimits, other.typeLimits)
}

// changeFrame returns the frame that changes the capacity from previous to c. A frame without type
// limits would leave the previous limits as they are. So if c has no type limits, the frame sets
// the previous ones to the largest value.
func (c capacity) changeFrame(previous capacity) *lessorv1.SessionRequest {
	f := &lessorv1.Capacity{MaxParallel: uint32(c.slots)}
	if !maps.Equal(c.typeLimits, previous.typeLimits) {
		f.PerTypeLimits = typeLimits(c.typeLimits)
		if len(c.typeLimits) == 0 {
			for t := range previous.typeLimits {
				f.PerTypeLimits[t] = maxParallel
			}
		}
	}
	return &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Capacity{Capacity: f}}
}

func typeLimits(limits map[string]int) map[string]uint32 {
	wire := make(map[string]uint32, len(limits))
	for t, n := range limits {
		wire[t] = uint32(n)
	}
	return wire
}

// capabilitiesLocked returns the capabilities for register, and the capacity that they declare.
// register must declare at least one slot; if the worker has none, a capacity frame says so right
// after register.
func (w *Worker) capabilitiesLocked() (*lessorv1.Capabilities, capacity) {
	c := w.capacityLocked()
	c.slots = max(c.slots, 1)
	return &lessorv1.Capabilities{
		Concurrency: &lessorv1.Concurrency{
			MaxParallel:   uint32(c.slots),
			PerTypeLimits: typeLimits(c.typeLimits),
			SingleFlight:  w.cfg.SingleFlight,
			MaxBytes:      uint64(w.cfg.MaxBytes),
		},
		Types:     w.types(),
		Runtimes:  w.cfg.Runtimes,
		Features:  w.cfg.Features,
		Labels:    w.cfg.Labels,
		Resources: w.cfg.Resources,
	}, c
}

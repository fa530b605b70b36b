package engine

// mostBlockers is how many queues of blockers one look at a space goes through, of the oldest
// blockers first. A variable so that tests can make it small.
var mostBlockers = 1000

// blocker is the oldest lease of a concurrency key under which tasks are parked: how long it has
// been live says whether they wait for something that hangs
// (docs/decisions/0047-age-of-the-oldest-blocker.md).
type blocker struct {
	holder
	key *concurrencyKey
}

func blockerLess(a, b blocker) bool { return a.less(b.holder) }

// updateBlocker keeps the blockers of the space up to date after a change of the leases of the key
// or of its parked lines.
func (k *concurrencyKey) updateBlocker() {
	var is holder
	if len(k.parked) > 0 {
		is, _ = k.holders.Min()
	}
	if is == k.blocker {
		return
	}
	if k.blocker != (holder{}) {
		k.space.blockers.Delete(blocker{k.blocker, k})
	}
	if is != (holder{}) {
		k.space.blockers.Set(blocker{is, k})
	}
	k.blocker = is
}

// oldestBlockers returns for each queue the oldest lease that holds a concurrency key under which
// tasks of the queue are parked. It looks at the oldest blockers of the space alone, so that it
// costs the same however many there are: a queue that has none of these is left out.
//
// A line whose parked tasks were all removed while none of them was in memory still counts until a
// lease of the key ends: see head.dry.
func (s *space) oldestBlockers() map[string]holder {
	found, looked := map[string]holder{}, 0
	s.blockers.Scan(func(b blocker) bool {
		b.key.queues.Scan(func(queue string, _ int) bool {
			if _, older := found[queue]; !older {
				found[queue] = b.holder
			}
			looked++
			return looked < mostBlockers
		})
		return looked < mostBlockers
	})
	return found
}

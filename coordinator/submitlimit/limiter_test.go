package submitlimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// size is the room of the tests, in bytes.
const size = 64 << 20

// held returns how many bytes of the room are taken.
func (l *Limiter) held() int {
	bytes, _ := l.Usage()
	return bytes
}

// mustTake takes room for a test that does not have to wait for it.
func mustTake(t *testing.T, l *Limiter, tenant string, bytes int) *Place {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	p, err := l.Take(ctx, tenant, bytes)
	if err != nil {
		t.Fatalf("no room for %d bytes of %s: %v", bytes, tenant, err)
	}
	return p
}

// X5, T12: tenants that wait for room take turns: the one that has the least of it is first, and
// each waits in its own order. No tenant has more than half.
func TestTenantsShareTheRoom(t *testing.T) {
	t.Attr("rules", "X5 T12")
	synctest.Test(t, func(t *testing.T) {
		l := New(size, 4<<20, nil)
		mine := mustTake(t, l, "a", l.size/2)
		mine.Arrived(l.size / 2)
		var mu sync.Mutex
		var got []string
		var places []*Place
		wait := func(tenant, name string, bytes int) {
			go func() {
				p, err := l.Take(t.Context(), tenant, bytes)
				if err != nil {
					t.Error(err)
					return
				}
				p.Arrived(bytes)
				mu.Lock()
				defer mu.Unlock()
				got, places = append(got, name), append(places, p)
			}()
			synctest.Wait()
		}
		wait("a", "a1", l.size/4)
		wait("a", "a2", l.size/4)
		if len(got) != 0 {
			t.Errorf("%v got room, while their tenant has half of it", got)
		}
		wait("b", "b1", l.size/4)
		wait("c", "c1", l.size/4)
		wait("b", "b2", l.size/4) // a has the most, then b
		wait("c", "c2", l.size/4)
		if want := []string{"b1", "c1"}; !slices.Equal(got, want) {
			t.Errorf("%v got room, want %v", got, want)
		}
		mine.Leave()
		synctest.Wait()
		if len(got) != 4 || !slices.Contains(got, "a1") {
			t.Errorf("%v got room, want b1, c1, a1, and one of b2 and c2", got)
		}
		for len(places) > 0 {
			p := places[0]
			places = places[1:]
			p.Leave()
			synctest.Wait()
		}
		if len(got) != 6 || l.held() != 0 || len(l.tenants) != 0 {
			t.Errorf("%v got room; at the end %d bytes are held, by %d tenants", got, l.held(), len(l.tenants))
		}
	})
}

// X5: room is kept only for a while for a message that does not come. When it comes after that, it
// takes its room all the same. A message that is larger than the room is taken if the room is
// empty, and a caller that gives up leaves the line.
func TestRoomForExpectedMessages(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		l := New(size, 4<<20, nil)
		idle := mustTake(t, l, "a", l.size)
		begin := time.Now()
		next, err := l.Take(t.Context(), "a", l.size)
		if waited := time.Since(begin); err != nil || waited < expectFor || waited > 2*expectFor {
			t.Errorf("the next message waited for %v (%v), want about %v", waited, err, expectFor)
		}
		idle.Arrived(l.size)
		if want := l.size + l.size/2; l.held() != want { // the next one got less, as the first one had not come
			t.Errorf("%d bytes are held, want %d", l.held(), want)
		}
		next.Arrived(1)
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Take(brief, "a", 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a take while the room is full: %v", err)
		}
		if _, err := l.Take(brief, "a", 1); err == nil {
			t.Error("a take after the end of its context has succeeded")
		}
		mustTake(t, l, "b", l.size).Leave() // the first message of a tenant waits for nobody
		idle.Leave()
		next.Leave()
		next.Leave() // changes nothing
		mustTake(t, l, "b", 10*l.size).Leave()
		if l.held() != 0 || len(l.tenants) != 0 || l.waiting != 0 {
			t.Errorf("at the end %d bytes are held by %d tenants, and %d wait", l.held(), len(l.tenants), l.waiting)
		}
	})
}

// X5: when many streams are opened at once, of which most have nothing to send yet, others do not
// wait for long. If large messages come, room is kept for each.
func TestManyIdleStreams(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		const streams, most = 1000, 4 << 20
		l := New(size, most, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		open := func(n int, then func(*Place)) {
			for range n {
				go func() {
					p, err := l.Take(ctx, "a", most)
					if err != nil {
						return
					}
					defer p.Leave()
					then(p)
				}()
			}
			synctest.Wait()
		}
		idle := func(*Place) { <-ctx.Done() }
		open(streams, idle)
		begin := time.Now()
		p, err := l.Take(ctx, "a", 1)
		if err != nil {
			t.Fatal(err)
		}
		p.Leave()
		if waited := time.Since(begin); waited > 10*expectFor {
			t.Errorf("a small submit waited for %v", waited)
		}
		time.Sleep(2 * expectFor)
		open(streams, func(p *Place) {
			p.Arrived(most)
			time.Sleep(time.Minute)
		})
		if held := l.held(); held > l.size/2 {
			t.Errorf("%d MiB of large messages are held, want at most %d", held>>20, l.size>>21)
		}
		time.Sleep(time.Minute)
		if held := l.held(); held > l.size/2 {
			t.Errorf("%d MiB of the next messages are held, want at most %d", held>>20, l.size>>21)
		}
		cancel()
		time.Sleep(2 * time.Minute)
		if l.held() != 0 || l.waiting != 0 || len(l.tenants) != 0 {
			t.Errorf("at the end %d bytes are held by %d tenants, and %d wait", l.held(), len(l.tenants), l.waiting)
		}
	})
}

// X5: whatever submits do, and whenever they give up, the room that each tenant has adds up to what
// is not free, and at the end all of it is free. Nobody waits for ever.
func TestRoomAddsUp(t *testing.T) {
	t.Attr("rules", "X5")
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			stopping := make(chan struct{})
			l := New(1<<20, 4<<20, stopping)
			adds := func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				sum := 0
				for _, of := range l.tenants {
					sum += of.bytes
				}
				if sum != l.size-l.free {
					t.Errorf("seed %d: the tenants have %d bytes, and %d of %d are free", seed, sum, l.free, l.size)
				}
			}
			var all sync.WaitGroup
			for n := range uint64(30) {
				random := rand.New(rand.NewPCG(seed, n))
				upTo := func(most time.Duration) time.Duration { return time.Duration(random.Int64N(int64(most))) }
				all.Go(func() {
					for range 20 {
						ctx, cancel := context.WithTimeout(t.Context(), upTo(3*time.Second))
						p, err := l.Take(ctx, fmt.Sprint(random.IntN(4)), random.IntN(3)*random.IntN(l.size/2))
						cancel()
						if err != nil {
							continue
						}
						time.Sleep(upTo(3 * expectFor))
						if random.IntN(3) > 0 {
							p.Arrived(random.IntN(l.size))
							time.Sleep(upTo(expectFor))
						}
						adds()
						p.Leave()
						adds()
					}
				})
			}
			if seed%4 == 0 {
				time.Sleep(3 * time.Second)
				close(stopping)
			}
			all.Wait()
			if l.free != l.size || l.waiting != 0 || len(l.tenants) != 0 {
				t.Errorf("seed %d: at the end %d of %d bytes are free, %d submits wait, and %d tenants have room; want all, and none", seed, l.free, l.size, l.waiting, len(l.tenants))
			}
			time.Sleep(expectFor) // the last look
		})
	}
}

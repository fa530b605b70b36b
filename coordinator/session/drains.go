package session

import (
	"container/list"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// drains remembers the drains that operators asked of instances. Registry.mu guards it.
type drains struct {
	byInstance map[string]*rememberedDrain
	// ended has, by tenant, the instances without a stream that have a drain, the first to expire
	// first.
	ended map[string]*list.List
}

func newDrains() drains {
	return drains{byInstance: map[string]*rememberedDrain{}, ended: map[string]*list.List{}}
}

// rememberedDrain is the drain that an operator asked of an instance. It outlives the stream.
// Otherwise the worker would get work again as soon as it connects again.
type rememberedDrain struct {
	tenant string
	drain  *lessorv1.Drain
	until  time.Time     // when it expires; zero while a stream of the instance is open
	place  *list.Element // in drains.ended; nil while a stream of the instance is open
}

// drainMemory is how long a drain is remembered after the last stream of its instance has ended.
// maxDrains is how many instances of a tenant that have no stream may have one, so that instances
// which come, are drained and go do not fill the memory. The oldest are forgotten first.
const (
	drainMemory = time.Hour
	maxDrains   = 100_000
)

// of returns the drain that is remembered of an instance, or nil.
func (ds *drains) of(instance string) *lessorv1.Drain {
	if d := ds.byInstance[instance]; d != nil {
		return d.drain
	}
	return nil
}

// keep keeps the drain of an instance: for drainMemory if no stream of the instance is open, and
// else until keep is called without one.
func (ds *drains) keep(tenant, instance string, d *lessorv1.Drain, open bool) {
	ds.forget(instance)
	kept := &rememberedDrain{tenant: tenant, drain: d}
	ds.byInstance[instance] = kept
	if open {
		return
	}
	of := ds.ended[tenant]
	if of == nil {
		of = list.New()
		ds.ended[tenant] = of
	}
	kept.until, kept.place = time.Now().Add(drainMemory), of.PushBack(instance)
	if of.Len() > maxDrains {
		ds.forget(of.Front().Value.(string))
	}
}

// forget forgets the drain of an instance, if there is one.
func (ds *drains) forget(instance string) {
	d := ds.byInstance[instance]
	if d == nil {
		return
	}
	delete(ds.byInstance, instance)
	if d.place == nil {
		return
	}
	if of := ds.ended[d.tenant]; of.Len() == 1 {
		delete(ds.ended, d.tenant)
	} else {
		of.Remove(d.place)
	}
}

// expire forgets the drains of a tenant that have expired.
func (ds *drains) expire(tenant string) {
	for ds.ended[tenant] != nil {
		first := ds.ended[tenant].Front().Value.(string)
		if !time.Now().After(ds.byInstance[first].until) {
			return
		}
		ds.forget(first)
	}
}

// rememberDrain remembers the drain that an operator asked of an instance of a tenant; a nil d
// forgets it.
func (r *Registry) rememberDrain(tenant, instance string, d *lessorv1.Drain) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drains.expire(tenant)
	if d == nil {
		r.drains.forget(instance)
		return
	}
	// the streams of the instance may have ended since the caller listed them
	r.drains.keep(tenant, instance, d, r.open[instance] > 0)
}

// drainOf returns the drain that is remembered of an instance with an open stream, or nil.
func (r *Registry) drainOf(instance string) *lessorv1.Drain {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drains.of(instance)
}

package boltstore

import (
	"fmt"
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// Sizes of records in bytes, about those of a small task.
const (
	benchSpec   = 350 // includes the state of the task
	benchRow    = 120
	benchOutput = 100
)

// taskSteps adds to a batch what one step of a task changes in the store: its submit, its grant or
// its complete.
type taskSteps struct {
	key, indexKey []byte
	payload       [benchSpec]byte
}

func (l *taskSteps) submit(b *store.Batch, id lease.TaskID) {
	l.key = store.AppendTaskKey(l.key[:0], id)
	b.PutSealed(store.Spec, l.key, 1, l.payload[:benchSpec])
	b.Put(store.Ready, l.ready(id), nil)
}

func (l *taskSteps) grant(b *store.Batch, id lease.TaskID) {
	l.key = store.AppendTaskKey(l.key[:0], id)
	b.Delete(store.Ready, l.ready(id))
	b.PutSealed(store.Lease, l.key, 1, l.payload[:benchRow])
}

func (l *taskSteps) complete(b *store.Batch, id lease.TaskID) {
	l.key = store.AppendTaskKey(l.key[:0], id)
	b.Delete(store.Lease, l.key)
	b.PutSealed(store.Task, l.key, 1, l.payload[:benchRow])
	b.PutSealed(store.Output, l.key, 1, l.payload[:benchOutput])
	l.indexKey = store.WallTimer(lease.Wall(id.Seq), id).Append(l.indexKey[:0])
	b.Put(store.Timer, l.indexKey, nil)
}

// ready returns the key of the task in the index Ready.
func (l *taskSteps) ready(id lease.TaskID) []byte {
	l.indexKey = store.ReadyKey{Space: id.Space, Line: 1, Place: id.Seq, Seq: id.Seq}.Append(l.indexKey[:0])
	return l.indexKey
}

// BenchmarkCommit takes a number of tasks through the three steps of their life. Each commit has
// one step of all these tasks.
func BenchmarkCommit(b *testing.B) {
	for _, tasks := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) { benchCommit(b, tasks) })
	}
}

func benchCommit(b *testing.B, tasks int) {
	s, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var l taskSteps
	var batch store.Batch
	next := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		for _, step := range []func(*store.Batch, lease.TaskID){l.submit, l.grant, l.complete} {
			batch.Reset()
			for i := range uint64(tasks) {
				step(&batch, lease.TaskID{Space: 1, Seq: next + i})
			}
			if err := s.Commit(b.Context(), &batch); err != nil {
				b.Fatal(err)
			}
		}
		next += uint64(tasks)
	}
	b.ReportMetric(float64(next)/b.Elapsed().Seconds(), "lives/s")
	b.ReportMetric(float64(s.Stats().FileBytes)/float64(next), "file-B/life")
}

package lease

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
)

// Class holds the fields of a task, beside its queue, type and fairness key, that decide which
// workers may take it: the requirements, the pin to a worker and the affinity (W12). It is one
// string in canonical form, so that lines compare with ==. It is empty for a task that has none of
// these. Hashes of a Class are in keys on disk: the encoding of an existing part must never change,
// and a new part gets a new number.
type Class string

// Placement is the decoded form of a Class.
type Placement struct {
	Requirements Requirements
	Worker       string // the worker to which the tasks are pinned; empty: any worker
	Affinity     string // the affinity key; empty: none
	Mode         AffinityMode
}

// The parts of a class, in the order in which Spec.Class writes them. Spec.Class leaves out an
// empty part.
const (
	classRuntimes byte = iota + 1
	classFeatures
	classLabels
	classResources
	classWorker
	classSticky
	classPreferred
	classPackage
)

// Class returns the class of the tasks that have this spec.
func (s *Spec) Class() Class {
	if s.Requirements == nil && len(s.ResourceRefs) == 0 && s.Affinity == nil {
		return ""
	}
	var space [256]byte
	b := space[:0]
	if r := s.Requirements; r != nil {
		b = appendNames(b, classRuntimes, r.Runtimes)
		b = appendNames(b, classFeatures, r.Features)
		b = appendTable(b, classLabels, r.Labels, appendText)
		b = appendTable(b, classResources, r.Resources, func(b []byte, v float64) []byte {
			return binary.BigEndian.AppendUint64(b, math.Float64bits(v))
		})
	}
	if w := s.Pinned(); w != "" {
		b = appendText(append(b, classWorker), w)
	}
	if a := s.Affinity; a != nil {
		part := classPreferred
		if a.Mode == Sticky {
			part = classSticky
		}
		b = appendText(append(b, part), a.Key)
	}
	if r := s.Requirements; r != nil && r.Package != "" {
		b = appendText(append(b, classPackage), r.Package)
	}
	return Class(b)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendNames writes a set of names: sorted, and each name once.
func appendNames(b []byte, part byte, names []string) []byte {
	if len(names) == 0 {
		return b
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	b = binary.AppendUvarint(append(b, part), uint64(len(names)))
	for _, name := range names {
		b = appendText(b, name)
	}
	return b
}

func appendTable[V any](b []byte, part byte, table map[string]V, value func([]byte, V) []byte) []byte {
	if len(table) == 0 {
		return b
	}
	b = binary.AppendUvarint(append(b, part), uint64(len(table)))
	for _, k := range slices.Sorted(maps.Keys(table)) {
		b = value(appendText(b, k), table[k])
	}
	return b
}

// Placement decodes what Spec.Class wrote.
func (c Class) Placement() (p Placement) {
	r := classReader(c)
	for len(r) > 0 {
		switch part := r.next(1)[0]; part {
		case classRuntimes:
			p.Requirements.Runtimes = r.names()
		case classFeatures:
			p.Requirements.Features = r.names()
		case classLabels:
			p.Requirements.Labels = readTable(&r, r.text)
		case classResources:
			p.Requirements.Resources = readTable(&r, func() float64 {
				return math.Float64frombits(binary.BigEndian.Uint64([]byte(r.next(8))))
			})
		case classPackage:
			p.Requirements.Package = r.text()
		case classWorker:
			p.Worker = r.text()
		case classSticky:
			p.Affinity, p.Mode = r.text(), Sticky
		case classPreferred:
			p.Affinity, p.Mode = r.text(), Preferred
		}
	}
	return p
}

// classReader is the part of a class that is not decoded yet.
type classReader string

func (r *classReader) next(n int) string {
	s := string((*r)[:n])
	*r = (*r)[n:]
	return s
}

func (r *classReader) num() int {
	n, size := binary.Uvarint([]byte((*r)[:min(len(*r), binary.MaxVarintLen64)]))
	*r = (*r)[size:]
	return int(n)
}

func (r *classReader) text() string { return r.next(r.num()) }

func (r *classReader) names() []string {
	all := make([]string, r.num())
	for i := range all {
		all[i] = r.text()
	}
	return all
}

func readTable[V any](r *classReader, value func() V) map[string]V {
	n := r.num()
	all := make(map[string]V, n)
	for range n {
		k := r.text()
		all[k] = value()
	}
	return all
}

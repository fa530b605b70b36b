package boltstore

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// watchNames returns a function that returns what has happened to the files in a directory since,
// in order.
func watchNames(t *testing.T, dir string) (happened func() []string) {
	t.Helper()
	kinds := map[uint32]string{
		unix.IN_CREATE: "make", unix.IN_DELETE: "remove", unix.IN_MOVED_TO: "move here",
		unix.IN_MOVED_FROM: "move away", unix.IN_MODIFY: "write",
	}
	all := uint32(0)
	for kind := range kinds {
		all |= kind
	}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, dir, all); err != nil {
		t.Fatal(err)
	}
	return func() (events []string) {
		buf := make([]byte, 1<<16)
		n, err := unix.Read(fd, buf)
		if err != nil {
			t.Fatal(err)
		}
		for buf = buf[:n]; len(buf) > 0; {
			kind, size := binary.NativeEndian.Uint32(buf[4:]), binary.NativeEndian.Uint32(buf[12:])
			name := string(bytes.TrimRight(buf[unix.SizeofInotifyEvent:][:size], "\x00"))
			events = append(events, kinds[kind&^unix.IN_ISDIR]+" "+name)
			buf = buf[unix.SizeofInotifyEvent+size:]
		}
		return events
	}
}

// The marker is the first thing that a standby makes: otherwise a crash could leave a directory in
// which a coordinator makes a store.
func TestStandbyMakesTheMarkerFirst(t *testing.T) {
	dir := t.TempDir()
	happened := watchNames(t, dir)
	mustOpenStandby(t, dir)
	if got := happened(); got[0] != "make "+standbyName {
		t.Errorf("OpenStandby did: %s; want that it makes %s first", strings.Join(got, ", "), standbyName)
	}
}

// Replace never removes the complete copy: the newer one takes its name. The directory of the newer
// one goes only afterwards.
func TestReplaceIsOneStep(t *testing.T) {
	dir, _ := standbyWithCopy(t)
	s := mustOpenStandby(t, dir)
	begin(t, s, "newer")
	happened := watchNames(t, dir)
	if err := s.Replace(); err != nil {
		t.Fatal(err)
	}
	got := happened()
	replaced, removed := slices.Index(got, "move here "+fileName), slices.Index(got, "remove "+copyingName)
	for _, not := range []string{"remove " + fileName, "move away " + fileName, "make " + fileName, "remove " + standbyName} {
		if slices.Contains(got, not) {
			replaced = -1
		}
	}
	if replaced < 0 || removed < replaced {
		t.Errorf("Replace did: %s; want that it moves %s there, then removes %s, and does nothing else to %[2]s",
			strings.Join(got, ", "), fileName, copyingName)
	}
}

// Promote removes the marker last, when it no longer writes to the store.
func TestPromoteRemovesTheMarkerLast(t *testing.T) {
	dir, _ := standbyWithCopy(t)
	begin(t, mustOpenStandby(t, dir), "unfinished")
	dir = imageOf(t, dir)
	happened := watchNames(t, dir)
	if err := Promote(dir, Options{}, func(s *Store) error { commitValue(t, s, "promoted"); return nil }); err != nil {
		t.Fatal(err)
	}
	got := happened()
	if !slices.Contains(got, "write "+fileName) || !slices.Contains(got, "remove "+copyingName) || got[len(got)-1] != "remove "+standbyName {
		t.Errorf("Promote did: %s; want that it writes to the store, removes %s, and last of all %s",
			strings.Join(got, ", "), copyingName, standbyName)
	}
}

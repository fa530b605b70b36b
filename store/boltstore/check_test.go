package boltstore

import (
	"bytes"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/store"
)

// Two buckets on one tree look sound each for itself; the first commit to one of them would free pages of the other.
func TestCheckFindsPageUsedTwice(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	var b store.Batch
	for i := range byte(200) {
		b.Put(store.Spec, []byte{i}, make([]byte, 100))
		b.Put(store.Task, []byte{i}, make([]byte, 100))
	}
	if err := s.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	content := read(t, dir)
	if err := checkData(content); err != nil {
		t.Fatalf("a sound file: %v", err)
	}
	copy(rootOf(t, content, "task"), rootOf(t, content, "spec"))
	if err := checkData(content); err == nil || !strings.Contains(err.Error(), "is used twice") {
		t.Errorf("check = %v, want a page that is used twice", err)
	}
}

// A small bucket lies within its parent's page and has none of its own. One that says otherwise looks sound, and the first commit to it would give back a page
// that is not its own.
func TestCheckFindsPageOfSmallBucket(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	var b store.Batch
	b.Put(store.Spec, []byte("a"), []byte("small"))
	if err := s.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	content := read(t, dir)
	root := rootOf(t, content, "spec")
	if order.Uint64(root) != 0 {
		t.Fatal("the bucket has a page of its own")
	}
	const sequence = 8
	own := root[:8+sequence+8][8+sequence:]
	own[7] ^= 1 << 5 // the page 1<<61, which lies at the beginning of the file
	if err := checkData(content); err == nil || !strings.Contains(err.Error(), "its leaf says that it is page") {
		t.Errorf("check = %v, want a small bucket with a page", err)
	}
}

// rootOf returns the bytes that hold the number of a bucket's root page.
func rootOf(t *testing.T, content []byte, bucket string) []byte {
	t.Helper()
	m, _ := newestMeta(content)
	page := content[m.root*m.pageSize:][:m.pageSize]
	at := bytes.Index(page, []byte(bucket))
	if at < 0 {
		t.Fatalf("no bucket %s", bucket)
	}
	return page[at+len(bucket):][:8:24]
}

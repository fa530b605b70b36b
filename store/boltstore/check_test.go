package boltstore

import (
	"bytes"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/store"
)

// If two buckets point to the same tree, each of them looks sound. The check must refuse them: the
// first commit to one would free pages of the other.
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
	content := readFile(t, dir)
	if err := checkData(content); err != nil {
		t.Fatalf("a sound file: %v", err)
	}
	copy(rootOf(t, content, "task"), rootOf(t, content, "spec"))
	if err := checkData(content); err == nil || !strings.Contains(err.Error(), "is used twice") {
		t.Errorf("checkData = %v, want an error about a page that is used twice", err)
	}
}

// A small bucket lies within the page of its parent and has no page of its own, so its header says
// page 0. The check must refuse a small bucket with another number: it looks sound, but the first
// commit to the bucket would free that page of another bucket.
func TestCheckFindsPageOfSmallBucket(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	var b store.Batch
	b.Put(store.Spec, []byte("a"), []byte("small"))
	if err := s.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	content := readFile(t, dir)
	root := rootOf(t, content, "spec")
	if order.Uint64(root) != 0 {
		t.Fatal("the bucket has a page of its own, want a small bucket")
	}
	const sequence = 8
	own := root[:8+sequence+8][8+sequence:]
	own[7] ^= 1 << 5 // page 1<<61: multiplied by the size of a page this overflows to 0, the beginning of the file
	if err := checkData(content); err == nil || !strings.Contains(err.Error(), "its leaf says that it is page") {
		t.Errorf("checkData = %v, want an error about the page that the leaf of a small bucket names", err)
	}
}

// If a key in a branch page has changed, all records are still there, but a search for some of them
// goes to the wrong leaf. The check must refuse the file.
func TestCheckFindsKeyOutsideOfItsLeaf(t *testing.T) {
	content := readFile(t, filledStore(t))
	m, _ := newestMeta(content)
	branch := content[order.Uint64(rootOf(t, content, "spec"))*m.pageSize:][:m.pageSize]
	key, err := element(branch, 1, 0, 0) // the first key of the second leaf
	if err != nil || pageType(branch) != branchPage {
		t.Fatalf("the root of the bucket has type %#x (%v), want a branch", pageType(branch), err)
	}
	for _, by := range []byte{1, 255} {
		key[len(key)-1] += by
		if err := checkData(content); err == nil || !strings.Contains(err.Error(), "out of order") {
			t.Errorf("checkData = %v, want an error about a key that is out of order", err)
		}
		key[len(key)-1] -= by
	}
	if err := checkData(content); err != nil {
		t.Errorf("a sound file: %v", err)
	}
}

// rootOf returns the bytes of the file that hold the number of a bucket's root page. The slice can
// be extended to the header of a small bucket's leaf.
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

package boltstore

import (
	"os"
	"reflect"
	"unsafe"
)

// lockedFile returns the file that bbolt holds; it has no way to ask for it.
func lockedFile(s *Store) *os.File {
	field := reflect.ValueOf(s.db).Elem().FieldByName("file")
	return *(**os.File)(unsafe.Pointer(field.UnsafeAddr()))
}

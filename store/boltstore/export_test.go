package boltstore

import (
	"os"
	"reflect"
	"unsafe"
)

// checkedNames are the files of a store that is closed.
const checkedNames = fileName + " " + markName

// lockedFile returns the file that bbolt holds; it has no way to ask for it.
func lockedFile(s *Store) *os.File {
	field := reflect.ValueOf(s.db).Elem().FieldByName("file")
	return *(**os.File)(unsafe.Pointer(field.UnsafeAddr()))
}

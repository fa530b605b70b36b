package boltstore

import (
	"os"
	"reflect"
	"unsafe"
)

// filesOfMarkedStore are the files of a closed store that was found sound, as fileNames lists them.
const filesOfMarkedStore = fileName + " " + markName

// lockedFile returns the file that bbolt has open and locked, from a private field: bbolt has no function for it.
func lockedFile(s *Store) *os.File {
	field := reflect.ValueOf(s.db).Elem().FieldByName("file")
	return *(**os.File)(unsafe.Pointer(field.UnsafeAddr()))
}

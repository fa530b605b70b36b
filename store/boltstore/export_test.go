package boltstore

import (
	"os"
	"reflect"
	"unsafe"
)

// filesOfMarkedStore are the files of a closed store that was found sound, as fileNames lists them.
const filesOfMarkedStore = fileName + " " + markName

// lockedFile returns the file that bbolt has open and locked.
func lockedFile(s *Store) *os.File { return *lockedFileField(s) }

// lockedFileField returns the private field of bbolt that has this file: bbolt has no function for
// it. bbolt flushes the file in the field, but writes pages to the file that it has opened.
func lockedFileField(s *Store) **os.File {
	field := reflect.ValueOf(s.db).Elem().FieldByName("file")
	return (**os.File)(unsafe.Pointer(field.UnsafeAddr()))
}

// mappedBytes returns how much of the address space bbolt has mapped for the file.
func mappedBytes(s *Store) int64 { return reflect.ValueOf(s.db).Elem().FieldByName("datasz").Int() }

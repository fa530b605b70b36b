package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// SealSize is how many bytes a sealed value has before its payload: the version byte and the checksum.
const SealSize = 1 + 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Seal appends to dst the value that keeps payload under key: a version byte, which says how to read the payload, a
// CRC-32C over keyspace, key, version and payload, and the payload.
func Seal(dst []byte, ks Keyspace, key []byte, version byte, payload []byte) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, SealSize)...)
	dst = append(dst, payload...)
	seal(ks, key, version, dst[start:])
	return dst
}

// seal fills in the first SealSize bytes of a value whose payload is there.
func seal(ks Keyspace, key []byte, version byte, value []byte) {
	value[0] = version
	binary.BigEndian.PutUint32(value[1:], checksum(ks, key, version, value[SealSize:]))
}

// Open checks a value that was read under key and returns what was sealed; the payload is part of value. The error is a
// *CorruptError.
func Open(ks Keyspace, key, value []byte) (version byte, payload []byte, err error) {
	switch {
	case len(value) < SealSize:
		return 0, nil, corrupt(ks, key, fmt.Sprintf("a value of %d bytes is too short", len(value)))
	case !Sealed(ks, key, value):
		return 0, nil, corrupt(ks, key, "the checksum does not match")
	}
	return value[0], value[SealSize:], nil
}

// Sealed reports whether a value is what was sealed under key.
func Sealed(ks Keyspace, key, value []byte) bool {
	return len(value) >= SealSize && checksum(ks, key, value[0], value[SealSize:]) == binary.BigEndian.Uint32(value[1:])
}

// checksum starts with a head of fixed length that holds the length of the key, so that no bytes can wander from the key
// to the payload unseen.
func checksum(ks Keyspace, key []byte, version byte, payload []byte) uint32 {
	sum := ^uint32(0)
	for _, b := range [...]byte{byte(ks), version, byte(len(key) >> 8), byte(len(key))} {
		sum = castagnoli[byte(sum)^b] ^ sum>>8 // by hand, since the array would be allocated for crc32.Update
	}
	sum = crc32.Update(^sum, castagnoli, key)
	return crc32.Update(sum, castagnoli, payload)
}

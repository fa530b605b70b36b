package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// SealSize is the size in bytes of what precedes the payload in a sealed value: the version byte
// and the checksum.
const SealSize = 1 + 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal fills in the first SealSize bytes of a value, which already contains the payload: a version
// byte, which says how to read the payload, and a CRC-32C over keyspace, key, version and payload.
func seal(ks Keyspace, key []byte, version byte, value []byte) {
	value[0] = version
	binary.BigEndian.PutUint32(value[1:], checksum(ks, key, version, value[SealSize:]))
}

// Open checks a value that was read under key, and returns its version and its payload. The payload
// shares the memory of value. The error is a *CorruptError.
func Open(ks Keyspace, key, value []byte) (version byte, payload []byte, err error) {
	switch {
	case len(value) < SealSize:
		return 0, nil, Corrupt(ks, key, fmt.Sprintf("a value of %d bytes is too short", len(value)))
	case !Sealed(ks, key, value):
		return 0, nil, Corrupt(ks, key, "the checksum does not match")
	}
	return value[0], value[SealSize:], nil
}

// Sealed reports whether the seal of a value under key is correct.
func Sealed(ks Keyspace, key, value []byte) bool {
	return len(value) >= SealSize && checksum(ks, key, value[0], value[SealSize:]) == binary.BigEndian.Uint32(value[1:])
}

// checksum begins with a head of fixed size that contains the length of the key. Without it, moving
// bytes from the key to the payload would not change the sum.
func checksum(ks Keyspace, key []byte, version byte, payload []byte) uint32 {
	sum := ^uint32(0)
	for _, b := range [...]byte{byte(ks), version, byte(len(key) >> 8), byte(len(key))} {
		sum = castagnoli[byte(sum)^b] ^ sum>>8 // not crc32.Update, which would make the array escape to the heap
	}
	sum = crc32.Update(^sum, castagnoli, key)
	return crc32.Update(sum, castagnoli, payload)
}

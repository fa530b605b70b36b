package memstore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"github.com/lessor-dev/lessor/store"
)

// A snapshot is a sequence of entries: the keyspace in one byte, then key and value, each preceded
// by its length.

// writeTo writes s to w and returns the number of bytes.
func (s *state) writeTo(w io.Writer) (n int64, err error) {
	var entry []byte
	for ks := range store.Keyspace(store.NumKeyspaces) {
		scanErr := s.Scan(ks, nil, nil, func(key, value []byte) bool {
			entry = appendBytes(appendBytes(append(entry[:0], byte(ks)), key), value)
			var written int
			written, err = w.Write(entry)
			n += int64(written)
			return err == nil
		})
		if err = errors.Join(err, scanErr); err != nil {
			return n, err
		}
	}
	return n, nil
}

// readSnapshot adds to b what writeTo wrote.
func readSnapshot(r io.Reader, b *store.Batch) error {
	in := bufio.NewReader(r)
	for {
		ks, err := in.ReadByte()
		if err == io.EOF {
			return nil
		}
		key, err2 := readBytes(in)
		value, err3 := readBytes(in)
		if err := errors.Join(err, err2, err3); err != nil {
			return err
		}
		b.Put(store.Keyspace(ks), key, value)
	}
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

func readBytes(in *bufio.Reader) ([]byte, error) {
	n, err := binary.ReadUvarint(in)
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	_, err = io.ReadFull(in, b)
	return b, err
}

package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
)

// The check of a record is the CRC32C of all its other bytes, folded to 16 bits; it is
// never 0. It detects damage in a record that is read on its own, long after its frame was
// checked. All records on disk have a check, except transient messages of quorum queues
// that an earlier release has logged: their check is 0. A lost block of a disk often reads
// as zeros, so a record without a check must look like such a message (see plausible).
const (
	checkAt  = 22
	checkEnd = checkAt + 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// zeros replace the check while it is computed.
var zeros [checkEnd - checkAt]byte

func fold(crc uint32) uint16 {
	if sum := uint16(crc>>16) ^ uint16(crc); sum != 0 {
		return sum
	}
	return 0xffff
}

// Seal writes the record's check into it. The maker of the record calls it once, before
// any other goroutine sees the record. REQUIRES: the record is whole and not sealed.
func (r Record) Seal() {
	binary.LittleEndian.PutUint16(r[checkAt:], fold(crc32.Checksum(r, castagnoli)))
}

// Sealed says whether the record has a check.
func (r Record) Sealed() bool { return r[checkAt]|r[checkAt+1] != 0 }

// Verify returns an error unless b is a whole record with the bytes that it was sealed
// with, or a record that an earlier release can have written without a check.
func Verify(b []byte) error {
	if err := CheckRecord(b); err != nil {
		return err
	}
	r := Record(b)
	if !r.Sealed() {
		return r.plausible()
	}
	crc := crc32.Update(0, castagnoli, r[:checkAt])
	crc = crc32.Update(crc, castagnoli, zeros[:])
	crc = crc32.Update(crc, castagnoli, r[checkEnd:])
	if want, got := binary.LittleEndian.Uint16(r[checkAt:]), fold(crc); got != want {
		return fmt.Errorf("message record: check is %04x, the bytes have %04x", want, got)
	}
	return nil
}

var (
	errNoCheck = errors.New("message record: no check")
	errZeros   = errors.New("message record: overwritten with zeros")
)

// plausible says why a record cannot have been written without a check. REQUIRES: the
// lengths add up.
func (r Record) plausible() error {
	switch {
	case r.Serial() == 0, !slices.ContainsFunc(r[recordHead:r.keyEnd()], func(b byte) bool { return b != 0 }):
		return errZeros // a message has a serial, and an exchange or a key
	case r.Persistent() || !wholeProperties(r.Properties()):
		return errNoCheck
	}
	return nil
}

// propertySizes are the sizes of the properties by flag bit, from the highest: -1 is a
// short string, -4 a table with 4 bytes of length.
var propertySizes = [...]int{-1, -1, -4, 1, 1, -1, -1, -1, -1, 8, -1, -1, -1, -1}

// wholeProperties says whether b is property flags and exactly the properties that they name.
func wholeProperties(b []byte) bool {
	if len(b) < 2 {
		return len(b) == 0
	}
	flags := binary.BigEndian.Uint16(b)
	b = b[2:]
	for i, size := range propertySizes {
		if flags&(1<<(15-i)) == 0 {
			continue
		}
		switch {
		case size == -1 && len(b) >= 1:
			size = 1 + int(b[0])
		case size == -4 && len(b) >= 4:
			size = 4 + int(binary.BigEndian.Uint32(b))
		}
		if size < 0 || size > len(b) {
			return false
		}
		b = b[size:]
	}
	return len(b) == 0
}

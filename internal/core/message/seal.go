package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The check of a record is the CRC32C of all its other bytes, folded to 16 bits; it is
// never 0. It detects damage in a record that is read on its own, long after its frame was
// checked. All records on disk have a check.
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
// with.
func Verify(b []byte) error {
	if err := CheckRecord(b); err != nil {
		return err
	}
	r := Record(b)
	if !r.Sealed() {
		return errNoCheck
	}
	crc := crc32.Update(0, castagnoli, r[:checkAt])
	crc = crc32.Update(crc, castagnoli, zeros[:])
	crc = crc32.Update(crc, castagnoli, r[checkEnd:])
	if want, got := binary.LittleEndian.Uint16(r[checkAt:]), fold(crc); got != want {
		return fmt.Errorf("message record: check is %04x, the bytes have %04x", want, got)
	}
	return nil
}

var errNoCheck = errors.New("message record: no check")

package message

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The check of a record is the CRC32C of all its other bytes, folded to 16 bits, with
// 0 taken to mean that there is none. It finds rot in a record that is read by
// itself, long after the frame it came in was checked.
const (
	checkAt  = 22
	checkEnd = checkAt + 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// zeros stand for the check while it is computed.
var zeros [checkEnd - checkAt]byte

func fold(crc uint32) uint16 {
	if sum := uint16(crc>>16) ^ uint16(crc); sum != 0 {
		return sum
	}
	return 0xffff
}

// Seal writes the record's check into it. It is called once, by whoever makes the
// record and before anybody else sees it. REQUIRES: the record is whole and not sealed.
func (r Record) Seal() {
	binary.LittleEndian.PutUint16(r[checkAt:], fold(crc32.Checksum(r, castagnoli)))
}

// Sealed says whether the record has a check.
func (r Record) Sealed() bool { return r[checkAt]|r[checkAt+1] != 0 }

// Verify says whether b is a whole record with the bytes it was sealed with. A record that was
// never sealed is taken as it is.
func Verify(b []byte) error {
	if err := CheckRecord(b); err != nil {
		return err
	}
	r := Record(b)
	if !r.Sealed() {
		return nil
	}
	crc := crc32.Update(0, castagnoli, r[:checkAt])
	crc = crc32.Update(crc, castagnoli, zeros[:])
	crc = crc32.Update(crc, castagnoli, r[checkEnd:])
	if want, got := binary.LittleEndian.Uint16(r[checkAt:]), fold(crc); got != want {
		return fmt.Errorf("message record: check is %04x, the bytes say %04x", want, got)
	}
	return nil
}

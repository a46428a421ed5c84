package bodyfile

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// A dense file, integers little endian:
//
//	0   magic "BTLYKEEP" | format u32 | number u32 | crc32c u32 of what is before
//	20  zeros
//	32  record, record, record ...
//
// A record has its own length and its own check. The file ends after the last record.
const (
	headerBytes   = 32
	formatVersion = 1
)

var (
	magic      = [8]byte{'B', 'T', 'L', 'Y', 'K', 'E', 'E', 'P'}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// errFormat reports a file in an unknown format.
var errFormat = errors.New("unknown format version")

func appendHeader(b []byte, number uint32) []byte {
	from := len(b)
	b = append(b, magic[:]...)
	b = binary.LittleEndian.AppendUint32(b, formatVersion)
	b = binary.LittleEndian.AppendUint32(b, number)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
	return append(b, make([]byte, from+headerBytes-len(b))...)
}

// checkHeader checks the beginning of a dense file. ok is false if it is not the header of
// that file: a crash came before the file was finished. The only error is errFormat.
func checkHeader(b []byte, number uint32) (ok bool, err error) {
	if len(b) < headerBytes || [8]byte(b[:8]) != magic ||
		crc32.Checksum(b[:16], castagnoli) != binary.LittleEndian.Uint32(b[16:]) {
		return false, nil
	}
	if binary.LittleEndian.Uint32(b[8:]) != formatVersion {
		return false, errFormat
	}
	return binary.LittleEndian.Uint32(b[12:]) == number, nil
}

// FirstRecord is the offset of the first record in a dense file.
const FirstRecord = headerBytes

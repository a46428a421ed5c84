package index

import (
	"encoding/binary"
	"errors"
)

// Append appends the cursor's stored form: of what is read over days a place must outlive the process.
//
//	0, or 1 and the entry it is behind | n | n × end      integers are uvarints; n is 0 if it has no end
func (c Cursor) Append(b []byte) []byte {
	if c.begun {
		b = append(b, 1)
		b = binary.AppendUvarint(b, uint64(c.id))
	} else {
		b = append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(c.ends)))
	for _, end := range c.ends {
		b = binary.AppendUvarint(b, end)
	}
	return b
}

var errCursor = errors.New("a stored cursor is malformed")

// ParseCursor reads what Append wrote.
func ParseCursor(b []byte) (c Cursor, err error) {
	bad := false
	uint := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			bad, n = true, len(b)
		}
		b = b[n:]
		return v
	}
	begun := uint()
	if c.begun = begun == 1; c.begun {
		c.id = ID(uint())
	}
	n := uint()
	if bad || begun > 1 || n > uint64(len(b)) {
		return Cursor{}, errCursor
	}
	for range n {
		c.ends = append(c.ends, uint())
	}
	if bad || len(b) > 0 {
		return Cursor{}, errCursor
	}
	return c, nil
}

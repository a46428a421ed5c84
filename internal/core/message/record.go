package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Record is a message as the broker keeps it: one run of bytes that never changes after
// the publish. It is the same in memory, in the journal and on its way to consumers.
//
//	 0  serial      u64  see Serial
//	 8  properties  u32  length of all between the BCC keys and the body; the highest bit: there are sections, see below
//	12  body        u32  length
//	16  bcc         u16  length, its lower 16 bits
//	18  exchange    u8   length
//	19  key         u8   length
//	20  flags       u8   5 of them, and the upper 3 bits of the length of bcc
//	21  priority    u8   the property, 0 if unset
//	22  check       u16  see Seal
//	24  exchange | key | bcc keys (short strings) | properties | body
//
// Integers are little endian. The properties are in the form the AMQP 0-9-1
// content header has after the body size, canonical (DL-6.15): headers sorted,
// BCC removed, expiration normalised.
//
// The properties are what the broker reads, of every message. A message that was
// published in another protocol has them too, converted when it came; what its own
// protocol has before and behind the body is kept beside them, and goes out untouched
// to clients of that protocol:
//
//	properties  u32  length
//	head        u32  length
//	properties | head | tail
//
// Of an AMQP 1.0 message the head is the bare message up to the content of its data
// section, and the tail is the footer. The body stands once, between what both see.
type Record []byte

const (
	recordHead   = 24
	sectionsBit  = 1 << 31
	sectionsHead = 8
)

// The flags of a record.
const (
	flagPersistent = 1 << iota
	flagHeaders    // there is a headers property
	flagCC         // there is a CC header
	flagExpiration // there is an expiration property
	flagPriority   // there is a priority property

	bccShift = iota // position of the upper bits of the length of the BCC keys
)

// MaxBCC is the maximal length of the keys of a message's BCC header as short strings, in bytes. An earlier program,
// which reads only the lower 16 bits, finds that the lengths of a longer record do not add up.
const MaxBCC = 1<<(16+8-bccShift) - 1

// Serial numbers messages in the order of their arrival: milliseconds since 1970 in the
// upper 44 bits, a counter below. A message keeps its serial in every move; copies of one
// message in two queues have the same serial.
type Serial uint64

// SerialBits is the width of a serial's counter.
const SerialBits = 20

// UnixMilli is the message's arrival, in milliseconds since 1970.
func (s Serial) UnixMilli() int64 { return int64(s >> SerialBits) }

// Envelope holds the parts of a record.
type Envelope struct {
	Serial     Serial
	Exchange   []byte // at most 255 bytes
	Key        []byte // at most 255 bytes
	BCC        []byte // extra keys taken from the BCC header, as short strings
	Properties []byte
	Sections   *Sections // nil unless the message came in another protocol
	BodySize   int

	Persistent    bool
	HasHeaders    bool
	HasCC         bool
	HasExpiration bool
	HasPriority   bool
	Priority      uint8
}

// Sections are the bytes that a message of AMQP 1.0 has around its body.
type Sections struct{ Head, Tail []byte }

// Size is the length of the envelope's record, in bytes.
func (e *Envelope) Size() int {
	return recordHead + len(e.Exchange) + len(e.Key) + len(e.BCC) + e.propertiesSize() + e.BodySize
}

// propertiesSize is the length of all between the BCC keys and the body.
func (e *Envelope) propertiesSize() int {
	if e.Sections == nil {
		return len(e.Properties)
	}
	return sectionsHead + len(e.Properties) + len(e.Sections.Head) + len(e.Sections.Tail)
}

// Check says why the envelope cannot be written, nil if it can. Edges check names and sizes of messages; only the size
// of the BCC header is not checked before.
func (e *Envelope) Check() error {
	switch {
	case len(e.Exchange) > MaxName || len(e.Key) > MaxName:
		return fmt.Errorf("message record: an exchange of %d bytes and a key of %d", len(e.Exchange), len(e.Key))
	case len(e.BCC) > MaxBCC:
		return fmt.Errorf("message record: BCC keys of %d bytes, the limit is %d", len(e.BCC), MaxBCC)
	case e.propertiesSize() >= sectionsBit || uint64(e.BodySize) > math.MaxUint32:
		return fmt.Errorf("message record: properties of %d bytes and a body of %d", e.propertiesSize(), e.BodySize)
	}
	return nil
}

// Put writes everything except the body into dst, which has at least Size bytes, and returns the part of dst for the
// body. It panics if Check has an error: a record with wrong lengths is worse than none.
func (e *Envelope) Put(dst []byte) (body []byte) {
	if err := e.Check(); err != nil {
		panic(err)
	}
	var flags uint8
	if e.Persistent {
		flags |= flagPersistent
	}
	if e.HasHeaders {
		flags |= flagHeaders
	}
	if e.HasCC {
		flags |= flagCC
	}
	if e.HasExpiration {
		flags |= flagExpiration
	}
	if e.HasPriority {
		flags |= flagPriority
	}
	le := binary.LittleEndian
	le.PutUint64(dst, uint64(e.Serial))
	le.PutUint32(dst[8:], uint32(e.propertiesSize()))
	le.PutUint32(dst[12:], uint32(e.BodySize))
	le.PutUint16(dst[16:], uint16(len(e.BCC)))
	flags |= uint8(len(e.BCC) >> 16 << bccShift)
	dst[18], dst[19], dst[20], dst[21] = uint8(len(e.Exchange)), uint8(len(e.Key)), flags, e.Priority
	dst[checkAt], dst[checkAt+1] = 0, 0 // see Seal
	n := recordHead
	n += copy(dst[n:], e.Exchange)
	n += copy(dst[n:], e.Key)
	n += copy(dst[n:], e.BCC)
	if e.Sections == nil {
		n += copy(dst[n:], e.Properties)
		return dst[n : n+e.BodySize]
	}
	dst[11] |= sectionsBit >> 24
	le.PutUint32(dst[n:], uint32(len(e.Properties)))
	le.PutUint32(dst[n+4:], uint32(len(e.Sections.Head)))
	n += sectionsHead
	n += copy(dst[n:], e.Properties)
	n += copy(dst[n:], e.Sections.Head)
	n += copy(dst[n:], e.Sections.Tail)
	return dst[n : n+e.BodySize]
}

var errRecord = errors.New("message record: lengths do not add up")

// CheckRecord returns an error unless b is a whole record: all lengths add up, including those of the BCC keys.
func CheckRecord(b []byte) error {
	if len(b) < recordHead {
		return errRecord
	}
	r := Record(b)
	want := uint64(r.bodyAt()) + uint64(r.BodySize())
	if want != uint64(len(b)) {
		return errRecord
	}
	for keys := r.BCC(); len(keys) > 0; {
		if len(keys) < 1+int(keys[0]) {
			return errRecord
		}
		keys = keys[1+int(keys[0]):]
	}
	return r.checkSections()
}

// checkSections returns an error unless properties, head and tail fit into the place that they share.
func (r Record) checkSections() error {
	if !r.HasSections() {
		return nil
	}
	shared := r[r.bccEnd():r.bodyAt()]
	if len(shared) < sectionsHead {
		return errRecord
	}
	le := binary.LittleEndian
	if uint64(le.Uint32(shared))+uint64(le.Uint32(shared[4:])) > uint64(len(shared)-sectionsHead) {
		return errRecord
	}
	return nil
}

func (r Record) exchangeEnd() int { return recordHead + int(r[18]) }
func (r Record) keyEnd() int      { return r.exchangeEnd() + int(r[19]) }
func (r Record) bccEnd() int      { return r.keyEnd() + r.bccSize() }
func (r Record) bodyAt() int      { return r.bccEnd() + r.sharedSize() }

// sharedSize is the length of all between the BCC keys and the body.
func (r Record) sharedSize() int { return int(binary.LittleEndian.Uint32(r[8:]) &^ sectionsBit) }

func (r Record) bccSize() int {
	return int(binary.LittleEndian.Uint16(r[16:])) | int(r[20]>>bccShift)<<16
}

// Serial is the message's number.
func (r Record) Serial() Serial { return Serial(binary.LittleEndian.Uint64(r)) }

// Exchange is the exchange the message was first published to.
func (r Record) Exchange() []byte { return r[recordHead:r.exchangeEnd()] }

// Key is the routing key the message was first published with.
func (r Record) Key() []byte { return r[r.exchangeEnd():r.keyEnd()] }

// BCC is the list of keys of the BCC header, as short strings.
func (r Record) BCC() []byte { return r[r.keyEnd():r.bccEnd()] }

// ShortStrings lists the keys of such a list. They are in its bytes.
func ShortStrings(b []byte) (list [][]byte) {
	for len(b) > 0 {
		n := int(b[0])
		list = append(list, b[1:1+n])
		b = b[1+n:]
	}
	return list
}

// Properties are the AMQP 0-9-1 property flags and values.
func (r Record) Properties() []byte {
	if !r.HasSections() {
		return r[r.bccEnd():r.bodyAt()]
	}
	begin := r.bccEnd()
	return r[begin+sectionsHead:][:binary.LittleEndian.Uint32(r[begin:])]
}

// HasSections says whether the message came in another protocol than AMQP 0-9-1.
func (r Record) HasSections() bool { return r[11]&(sectionsBit>>24) != 0 }

// Sections are what its own protocol has around the body of a message that did not come by AMQP 0-9-1. REQUIRES:
// HasSections.
func (r Record) Sections() Sections {
	shared := r[r.bccEnd():r.bodyAt()]
	properties, head := int(binary.LittleEndian.Uint32(shared)), int(binary.LittleEndian.Uint32(shared[4:]))
	shared = shared[sectionsHead+properties:]
	return Sections{shared[:head:head], shared[head:]}
}

// Body is the content.
func (r Record) Body() []byte { return r[r.bodyAt():] }

// BodySize is the length of the body, in bytes.
func (r Record) BodySize() int { return int(binary.LittleEndian.Uint32(r[12:])) }

// Persistent says whether delivery-mode is 2.
func (r Record) Persistent() bool { return r[20]&flagPersistent != 0 }

// HasHeaders says whether there is a headers property.
func (r Record) HasHeaders() bool { return r[20]&flagHeaders != 0 }

// HasCC says whether there is a CC header.
func (r Record) HasCC() bool { return r[20]&flagCC != 0 }

// HasExpiration says whether there is an expiration property.
func (r Record) HasExpiration() bool { return r[20]&flagExpiration != 0 }

// Priority is the priority property, and whether there is one.
func (r Record) Priority() (p uint8, ok bool) { return r[21], r[20]&flagPriority != 0 }

// RecordHead is the length of the first part of a record, which determines the record's length.
const RecordHead = recordHead

// RecordSize is the length of the record that begins with head.
func RecordSize(head []byte) int {
	r := Record(head)
	return recordHead + int(r[18]) + int(r[19]) + r.bccSize() + r.sharedSize() + r.BodySize()
}

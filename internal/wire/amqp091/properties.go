package amqp091

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// Flags of the basic properties, in the order they stand on the wire.
const (
	FlagContentType     uint16 = 1 << 15
	FlagContentEncoding uint16 = 1 << 14
	FlagHeaders         uint16 = 1 << 13
	FlagDeliveryMode    uint16 = 1 << 12
	FlagPriority        uint16 = 1 << 11
	FlagCorrelationID   uint16 = 1 << 10
	FlagReplyTo         uint16 = 1 << 9
	FlagExpiration      uint16 = 1 << 8
	FlagMessageID       uint16 = 1 << 7
	FlagTimestamp       uint16 = 1 << 6
	FlagType            uint16 = 1 << 5
	FlagUserID          uint16 = 1 << 4
	FlagAppID           uint16 = 1 << 3
	FlagClusterID       uint16 = 1 << 2

	// unusedFlags stand for no property of basic. RabbitMQ ignores them.
	unusedFlags uint16 = 3
)

// Props are the properties of a message, read in place: every slice aliases the raw
// bytes. What Flags does not have is nil or zero; present but empty is empty, not nil.
type Props struct {
	Flags           uint16
	ContentType     []byte
	ContentEncoding []byte
	Headers         []byte // content of the table, without its length; for RangeHeaders
	DeliveryMode    uint8
	Priority        uint8
	CorrelationID   []byte
	ReplyTo         []byte
	Expiration      []byte
	MessageID       []byte
	Timestamp       uint64 // seconds since 1970
	Type            []byte
	UserID          []byte
	AppID           []byte
	ClusterID       []byte

	headers tableForm
}

// Has reports whether all of the flags are set.
func (p *Props) Has(flags uint16) bool { return p.Flags&flags == flags }

// ParseProps reads raw properties: the flags and values that follow the body size in a
// content header. It is one walk that checks everything, short strings and keys for
// UTF-8 (BR-1.16) and tables down to the last value, so that later readers need not; it
// allocates nothing. An error is a *PropertyError.
func ParseProps(raw []byte) (p Props, err error) {
	err = p.Parse(raw)
	return p, err
}

// Parse is ParseProps into Props that the caller has. After an error there are none.
func (p *Props) Parse(raw []byte) error {
	*p = Props{}
	if len(raw) < 2 {
		return &PropertyError{"property-flags", ErrTruncated}
	}
	p.Flags = binary.BigEndian.Uint16(raw)
	r := propReader{rest: raw[2:], flags: p.Flags}
	p.ContentType = r.shortstr(FlagContentType)
	p.ContentEncoding = r.shortstr(FlagContentEncoding)
	p.Headers, p.headers = r.table(FlagHeaders)
	p.DeliveryMode = r.octet(FlagDeliveryMode)
	p.Priority = r.octet(FlagPriority)
	p.CorrelationID = r.shortstr(FlagCorrelationID)
	p.ReplyTo = r.shortstr(FlagReplyTo)
	p.Expiration = r.shortstr(FlagExpiration)
	p.MessageID = r.shortstr(FlagMessageID)
	p.Timestamp = r.timestamp(FlagTimestamp)
	p.Type = r.shortstr(FlagType)
	p.UserID = r.shortstr(FlagUserID)
	p.AppID = r.shortstr(FlagAppID)
	p.ClusterID = r.shortstr(FlagClusterID)
	if r.err == nil && len(r.rest) > 0 {
		r.failed, r.err = unusedFlags, ErrTrailing
	}
	if r.err != nil {
		*p = Props{}
		return &PropertyError{propertyName(r.failed), r.err}
	}
	return nil
}

// propReader reads properties in their order; after the first error it reads nothing.
type propReader struct {
	rest   []byte
	flags  uint16
	failed uint16 // flag of the property err is about
	err    error
}

// take returns the next n bytes.
func (r *propReader) take(flag uint16, n int) []byte {
	if n > len(r.rest) {
		r.failed, r.err = flag, ErrTruncated
		return nil
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *propReader) shortstr(flag uint16) []byte {
	if r.flags&flag == 0 || r.err != nil {
		return nil
	}
	length := r.take(flag, 1)
	if r.err != nil {
		return nil
	}
	s := r.take(flag, int(length[0]))
	if r.err == nil && !utf8.Valid(s) {
		r.failed, r.err = flag, ErrMalformedUTF8
	}
	return s
}

func (r *propReader) octet(flag uint16) uint8 {
	if r.flags&flag == 0 || r.err != nil {
		return 0
	}
	if b := r.take(flag, 1); r.err == nil {
		return b[0]
	}
	return 0
}

func (r *propReader) timestamp(flag uint16) uint64 {
	if r.flags&flag == 0 || r.err != nil {
		return 0
	}
	if b := r.take(flag, 8); r.err == nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *propReader) table(flag uint16) ([]byte, tableForm) {
	if r.flags&flag == 0 || r.err != nil {
		return nil, formCanonical
	}
	content, size, err := cutValue('F', r.rest)
	form := formCanonical
	if err == nil {
		r.rest = r.rest[size:]
		form, err = checkTable(content, 0)
	}
	if err != nil {
		r.failed, r.err = flag, err
	}
	return content, form
}

// A PropertyError is a property that cannot be decoded.
type PropertyError struct {
	Property string // its name in the protocol, as "content-type"
	Err      error  // ErrMalformedUTF8, ErrTruncated, ErrTrailing, ErrFieldType or ErrTooDeep
}

// Error names the property.
func (e *PropertyError) Error() string { return fmt.Sprintf("property %s: %v", e.Property, e.Err) }

// Unwrap returns Err.
func (e *PropertyError) Unwrap() error { return e.Err }

// propertyNames are the names of the properties from the highest flag down.
var propertyNames = [...]string{
	"content-type", "content-encoding", "headers", "delivery-mode", "priority", "correlation-id", "reply-to",
	"expiration", "message-id", "timestamp", "type", "user-id", "app-id", "cluster-id",
}

// propertyName returns the name of the property with the flag.
func propertyName(flag uint16) string {
	for i, name := range propertyNames {
		if flag == FlagContentType>>i {
			return name
		}
	}
	return "end"
}

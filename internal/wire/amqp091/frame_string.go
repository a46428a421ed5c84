package amqp091

import (
	"encoding/hex"
	"strconv"
)

// maxLine is the longest line FrameString makes, in bytes.
const maxLine = 1024

// FrameString shows a frame in one line, for logs and tests:
//
//	ch=1 basic.publish exchange="" routing-key="q" mandatory
//	ch=1 header class=60 size=4 delivery-mode=2 headers={n=signedint:1}
//	ch=1 body size=4
//
// Bits that are not set and empty tables are left out. Bodies and secrets are never shown,
// and a line longer than 1024 bytes is cut and ends in "...".
func FrameString(f Frame) string {
	w := lineWriter{dst: strconv.AppendUint([]byte("ch="), uint64(f.Channel), 10)}
	switch f.Type {
	case FrameMethod:
		w.method(f.Payload)
	case FrameHeader:
		w.contentHeader(f.Payload)
	case FrameBody:
		w.word("body")
		w.number("size", uint64(len(f.Payload)))
	case FrameHeartbeat:
		w.word("heartbeat")
	default:
		w.word("frame")
		w.number("type", uint64(f.Type))
		w.number("size", uint64(len(f.Payload)))
	}
	if len(w.dst) > maxLine {
		return cutAtRune(string(w.dst), maxLine-len("...")) + "..."
	}
	return string(w.dst)
}

// lineWriter appends words, each with a blank before it.
type lineWriter struct{ dst []byte }

func (w *lineWriter) word(s string) { w.dst = append(append(w.dst, ' '), s...) }

func (w *lineWriter) number(name string, v uint64) {
	w.word(name)
	w.dst = strconv.AppendUint(append(w.dst, '='), v, 10)
}

func (w *lineWriter) text(name, s string) {
	w.word(name)
	w.dst = strconv.AppendQuote(append(w.dst, '='), s)
}

func (w *lineWriter) flag(name string, set bool) {
	if set {
		w.word(name)
	}
}

// secret shows only how long the value is.
func (w *lineWriter) secret(name, s string) {
	w.word(name)
	w.dst = append(w.dst, "=("...)
	w.dst = append(strconv.AppendInt(w.dst, int64(len(s)), 10), " bytes)"...)
}

func (w *lineWriter) table(name string, t Table) {
	if len(t) > 0 {
		w.word(name)
		w.dst = append(w.dst, '=')
		w.value(t)
	}
}

func (w *lineWriter) failed(err error) {
	w.word("(" + err.Error() + ")")
}

func (w *lineWriter) method(payload []byte) {
	m, err := decodeMethod(payload)
	if err != nil {
		w.word("method")
		w.failed(err)
		return
	}
	w.word(m.Name())
	m.describe(w)
}

func (w *lineWriter) contentHeader(payload []byte) {
	w.word("header")
	class, size, raw, err := ParseContentHeader(payload)
	if err != nil {
		w.failed(err)
		return
	}
	w.number("class", uint64(class))
	w.number("size", size)
	p, err := DecodeProps(raw)
	if err != nil {
		w.failed(err)
		return
	}
	w.properties(p)
}

func (w *lineWriter) properties(l PropertyList) {
	text := func(flag uint16, s *string) {
		if s != nil {
			w.text(propertyName(flag), *s)
		}
	}
	octet := func(flag uint16, v *uint8) {
		if v != nil {
			w.number(propertyName(flag), uint64(*v))
		}
	}
	text(FlagContentType, l.ContentType)
	text(FlagContentEncoding, l.ContentEncoding)
	w.table(propertyName(FlagHeaders), l.Headers)
	octet(FlagDeliveryMode, l.DeliveryMode)
	octet(FlagPriority, l.Priority)
	text(FlagCorrelationID, l.CorrelationID)
	text(FlagReplyTo, l.ReplyTo)
	text(FlagExpiration, l.Expiration)
	text(FlagMessageID, l.MessageID)
	if l.Timestamp != nil {
		w.number(propertyName(FlagTimestamp), *l.Timestamp)
	}
	text(FlagType, l.Type)
	text(FlagUserID, l.UserID)
	text(FlagAppID, l.AppID)
	text(FlagClusterID, l.ClusterID)
}

// value appends a field value: text is quoted, all else but truth values, tables and
// arrays has its type before it.
func (w *lineWriter) value(value any) {
	switch v := value.(type) {
	case string:
		w.dst = strconv.AppendQuote(w.dst, v)
	case bool:
		w.dst = strconv.AppendBool(w.dst, v)
	case nil:
		w.dst = append(w.dst, "void"...)
	case Table:
		w.fields(v)
	case Array:
		w.elements(v)
	default:
		w.dst = append(append(w.dst, TypeName(value)...), ':')
		w.scalar(value)
	}
}

func (w *lineWriter) scalar(value any) {
	if n, ok := Int64(value); ok {
		w.dst = strconv.AppendInt(w.dst, n, 10)
		return
	}
	switch v := value.(type) {
	case float32:
		w.dst = strconv.AppendFloat(w.dst, float64(v), 'g', -1, 32)
	case float64:
		w.dst = strconv.AppendFloat(w.dst, v, 'g', -1, 64)
	case Timestamp:
		w.dst = strconv.AppendUint(w.dst, uint64(v), 10)
	case Decimal:
		w.dst = strconv.AppendUint(w.dst, uint64(v.Value), 10)
		w.dst = strconv.AppendUint(append(w.dst, "e-"...), uint64(v.Scale), 10)
	case []byte:
		w.dst = hex.AppendEncode(w.dst, v)
	}
}

func (w *lineWriter) fields(t Table) {
	w.dst = append(w.dst, '{')
	for i, f := range t {
		if i > 0 {
			w.dst = append(w.dst, ' ')
		}
		w.dst = append(appendKey(w.dst, f.Key), '=')
		w.value(f.Value)
	}
	w.dst = append(w.dst, '}')
}

func (w *lineWriter) elements(a Array) {
	w.dst = append(w.dst, '[')
	for i, v := range a {
		if i > 0 {
			w.dst = append(w.dst, ' ')
		}
		w.value(v)
	}
	w.dst = append(w.dst, ']')
}

// appendKey appends a key, quoted only if it has other than letters, digits, - _ and dots.
func appendKey(dst []byte, key string) []byte {
	for _, c := range []byte(key) {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
		if !plain {
			return strconv.AppendQuote(dst, key)
		}
	}
	return append(dst, key...)
}

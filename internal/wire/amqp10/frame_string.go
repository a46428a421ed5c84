package amqp10

import (
	"encoding/hex"
	"strconv"
	"unicode/utf8"
)

// maxLine is the longest line FrameString makes, in bytes.
const maxLine = 1024

// FrameString shows a frame in one line, for logs and tests:
//
//	ch=1 begin next-outgoing-id=0 incoming-window=2048 outgoing-window=2048
//	ch=1 transfer handle=0 delivery-id=7 delivery-tag=0102 payload=120
//	sasl-init mechanism=PLAIN initial-response=(9 bytes)
//
// Fields that are null are left out. Payloads and secrets are never shown, and a line longer than 1024
// bytes is cut and ends in "...".
func FrameString(f Frame) string {
	w := lineWriter{}
	if f.Type != FrameSASL {
		w.dst = strconv.AppendUint([]byte("ch="), uint64(f.Channel), 10)
	}
	if len(f.Body) == 0 {
		w.word("empty")
		return string(w.dst)
	}
	d, v, payload, err := ReadPerformative(f)
	if err != nil {
		w.word("(" + err.Error() + ")")
		return w.line()
	}
	t := typeOf(d)
	w.word(t.name())
	if err := NewComposite(d).Decode(v); err != nil {
		w.word("(" + err.Error() + ")")
		return w.line()
	}
	items := v.Underlying().Items()
	for i := 0; len(w.dst) <= maxLine; i++ {
		field, ok := items.Next()
		if !ok {
			break
		}
		if field.IsNull() {
			continue
		}
		w.word(t.fields[i].name)
		w.dst = append(w.dst, '=')
		if t.fields[i].secret {
			w.dst = append(strconv.AppendInt(append(w.dst, '('), int64(len(field.content)), 10), " bytes)"...)
		} else {
			w.value(field)
		}
	}
	if len(payload) > 0 {
		w.word("payload=" + strconv.Itoa(len(payload)))
	}
	return w.line()
}

// lineWriter appends words with blanks between them. Once the line is too long it appends nothing of values.
type lineWriter struct{ dst []byte }

func (w *lineWriter) word(s string) {
	if len(w.dst) > 0 {
		w.dst = append(w.dst, ' ')
	}
	w.dst = append(w.dst, s...)
}

// line is what was written, cut between characters.
func (w *lineWriter) line() string {
	if len(w.dst) <= maxLine {
		return string(w.dst)
	}
	n := maxLine - len("...")
	for n > 0 && !utf8.RuneStart(w.dst[n]) {
		n--
	}
	return string(w.dst[:n]) + "..."
}

// value appends a value that Check has passed: strings are quoted, octets are in hexadecimal.
func (w *lineWriter) value(v Value) {
	if len(w.dst) > maxLine {
		return
	}
	if d := v.DescriptorValue(); d.code != 0 {
		if t := typeOf(v.Descriptor()); t != nil {
			w.dst = append(w.dst, t.name()...)
		} else {
			w.value(d)
		}
		w.dst = append(w.dst, ':')
		w.value(v.Underlying())
		return
	}
	some := v.content[:min(len(v.content), maxLine)]
	switch v.Type() {
	case TypeNull:
		w.dst = append(w.dst, "null"...)
	case TypeBoolean:
		b, _ := v.Bool()
		w.dst = strconv.AppendBool(w.dst, b)
	case TypeUbyte, TypeUshort, TypeUint, TypeUlong:
		w.dst = strconv.AppendUint(w.dst, bigEndian(v.content), 10)
	case TypeByte, TypeShort, TypeInt, TypeLong, TypeTimestamp:
		w.dst = strconv.AppendInt(w.dst, signed(v.content), 10)
	case TypeFloat, TypeDouble:
		f, _ := v.Float64()
		w.dst = strconv.AppendFloat(w.dst, f, 'g', -1, 64)
	case TypeChar:
		r, _ := v.Char()
		w.dst = strconv.AppendQuoteRune(w.dst, r)
	case TypeString:
		w.dst = strconv.AppendQuote(w.dst, string(some))
	case TypeSymbol:
		w.symbol(some)
	case TypeList, TypeArray:
		w.items(v, '[', ']')
	case TypeMap:
		w.items(v, '{', '}')
	default:
		w.dst = hex.AppendEncode(w.dst, some)
	}
}

// symbol appends a symbol, quoted only if it has other than letters, digits and - _ . : * /.
func (w *lineWriter) symbol(s []byte) {
	for _, c := range s {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' || c == ':' || c == '*' || c == '/'
		if !plain {
			w.dst = strconv.AppendQuote(w.dst, string(s))
			return
		}
	}
	w.dst = append(w.dst, s...)
}

func (w *lineWriter) items(v Value, begin, end byte) {
	w.dst = append(w.dst, begin)
	items := v.Items()
	for i := 0; len(w.dst) <= maxLine; i++ {
		item, ok := items.Next()
		if !ok {
			break
		}
		switch {
		case i == 0:
		case begin == '{' && i%2 != 0:
			w.dst = append(w.dst, '=')
		default:
			w.dst = append(w.dst, ' ')
		}
		w.value(item)
	}
	w.dst = append(w.dst, end)
}

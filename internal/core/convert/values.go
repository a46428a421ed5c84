package convert

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"

	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// appendField appends a value of AMQP 1.0 as a field value of AMQP 0-9-1: type octet and value. depth is how many tables and
// arrays are around it. ok is false, and dst as it was, for what AMQP 0-9-1 has no equivalent for: decimals, NaN and infinities,
// described values, arrays whose elements take no octets, and what is nested deeper than it may be there. Inside lists and
// maps such values are left out. Whoever goes on with out, and not with dst, has the room that it has grown to.
func appendField(dst []byte, v *amqp10.Value, depth int) (out []byte, ok bool) {
	be := binary.BigEndian
	switch v.Type() {
	case amqp10.TypeNull:
		return append(dst, 'V'), true
	case amqp10.TypeBoolean:
		if b, _ := v.Bool(); b {
			return append(dst, 't', 1), true
		}
		return append(dst, 't', 0), true
	case amqp10.TypeUbyte:
		n, _ := v.Uint64()
		return append(dst, 'B', byte(n)), true
	case amqp10.TypeUshort:
		n, _ := v.Uint64()
		return be.AppendUint16(append(dst, 'u'), uint16(n)), true
	case amqp10.TypeUint:
		n, _ := v.Uint64()
		return be.AppendUint32(append(dst, 'i'), uint32(n)), true
	case amqp10.TypeUlong:
		n, _ := v.Uint64()
		return be.AppendUint64(append(dst, 'l'), n), true // the highest bit becomes the sign, as in RabbitMQ
	case amqp10.TypeByte:
		n, _ := v.Int64()
		return append(dst, 'b', byte(n)), true
	case amqp10.TypeShort:
		n, _ := v.Int64()
		return be.AppendUint16(append(dst, 's'), uint16(n)), true
	case amqp10.TypeInt:
		n, _ := v.Int64()
		return be.AppendUint32(append(dst, 'I'), uint32(n)), true
	case amqp10.TypeLong:
		n, _ := v.Int64()
		return be.AppendUint64(append(dst, 'l'), uint64(n)), true
	case amqp10.TypeFloat, amqp10.TypeDouble:
		f, _ := v.Float64()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return dst, false
		}
		if v.Type() == amqp10.TypeFloat {
			return be.AppendUint32(append(dst, 'f'), math.Float32bits(float32(f))), true
		}
		return be.AppendUint64(append(dst, 'd'), math.Float64bits(f)), true
	case amqp10.TypeTimestamp:
		ms, _ := v.Timestamp()
		return be.AppendUint64(append(dst, 'T'), uint64(ms/1000)), true
	case amqp10.TypeString:
		s, _ := v.Text()
		return appendLong(append(dst, 'S'), s), true
	case amqp10.TypeSymbol:
		s, _ := v.Symbol()
		return appendLong(append(dst, 'S'), s), true
	case amqp10.TypeBinary:
		s, _ := v.Binary()
		return appendLong(append(dst, 'S'), s), true
	case amqp10.TypeChar:
		r, _ := v.Char()
		return appendLong(append(dst, 'S'), utf8.AppendRune(nil, r)), true
	case amqp10.TypeUUID:
		id, _ := v.UUID()
		at := len(dst) + 1
		dst = appendURN(append(dst, 'S', 0, 0, 0, 0), &id)
		putSize(dst, at)
		return dst, true
	case amqp10.TypeList, amqp10.TypeArray, amqp10.TypeMap:
		return appendCompound(dst, v, depth)
	}
	return dst, false
}

// appendLong appends the length of a long string, and the string.
func appendLong[S ~string | ~[]byte](dst []byte, s S) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
}

// appendCompound is appendField for a list, an array or a map.
func appendCompound(dst []byte, v *amqp10.Value, depth int) (out []byte, ok bool) {
	if depth >= amqp091.MaxDepth {
		return dst, false
	}
	kind, isMap := byte('A'), v.Type() == amqp10.TypeMap
	if isMap {
		kind = 'F'
	}
	items := v.Items()
	at := len(dst) + 1
	out = append(dst, kind, 0, 0, 0, 0)
	for item, ok := items.Next(); ok; item, ok = items.Next() {
		before := len(out)
		if isMap {
			key := shortText(&item)
			value, _ := items.Next()
			if key == nil {
				continue
			}
			out = append(append(out, byte(len(key))), key...)
			item = value
		} else if v.Type() == amqp10.TypeArray && item.IsConstant() {
			return out[:len(dst)], false // as many as the client says, of no octets: RabbitMQ has no value for them either
		}
		if out, ok = appendField(out, &item, depth+1); !ok {
			out = out[:before]
		}
	}
	putSize(out, at)
	return out, true
}

// appendDeaths appends the annotation x-opt-deaths of a client as the header x-death. ok is false unless it is what a broker
// writes (DL-14.1): an array of maps with these keys in this order.
func appendDeaths(dst []byte, v *amqp10.Value) (out []byte, ok bool) {
	if v.Type() != amqp10.TypeArray {
		return dst, false
	}
	out = append(dst, 'A', 0, 0, 0, 0)
	items := v.Items()
	for death, ok := items.Next(); ok; death, ok = items.Next() {
		if out, ok = appendDeath(out, &death); !ok {
			return out[:len(dst)], false
		}
	}
	putSize(out, len(dst)+1)
	return out, true
}

// appendDeath appends an entry of x-death (DL-7.1).
func appendDeath(dst []byte, death *amqp10.Value) (out []byte, ok bool) {
	if death.Type() != amqp10.TypeMap {
		return dst, false
	}
	var values [len(deathKeys)]amqp10.Value
	items, next := death.Items(), 0
	for k, ok := items.Next(); ok; k, ok = items.Next() {
		v, _ := items.Next()
		if s, _ := k.Symbol(); next == 0 && string(s) != deathKeys[0].name {
			next = 1 // there may be no ttl
		}
		if s, _ := k.Symbol(); next == len(deathKeys) || string(s) != deathKeys[next].name || v.Type() != deathKeys[next].typ {
			return dst, false
		}
		values[next], next = v, next+1
	}
	if next != len(deathKeys) {
		return dst, false
	}
	be := binary.BigEndian
	b := append(dst, 'F', 0, 0, 0, 0)
	if ttl, ok := values[0].Uint64(); ok {
		b = appendKey(b, "original-expiration", 'S')
		at := len(b)
		b = strconv.AppendUint(append(b, 0, 0, 0, 0), ttl, 10)
		putSize(b, at)
	}
	count, _ := values[3].Uint64()
	b = be.AppendUint64(appendKey(b, "count", 'l'), count)
	reason, _ := values[2].Symbol()
	b = appendLong(appendKey(b, "reason", 'S'), reason)
	queue, _ := values[1].Text()
	b = appendLong(appendKey(b, "queue", 'S'), queue)
	first, _ := values[4].Timestamp()
	b = be.AppendUint64(appendKey(b, "time", 'T'), uint64(first/1000))
	exchange, _ := values[6].Text()
	b = appendLong(appendKey(b, "exchange", 'S'), exchange)
	b = append(appendKey(b, "routing-keys", 'A'), 0, 0, 0, 0)
	at := len(b)
	keys := values[7].Items()
	for key, ok := keys.Next(); ok; key, ok = keys.Next() {
		if key.Type() != amqp10.TypeString {
			return b[:len(dst)], false
		}
		s, _ := key.Text()
		b = appendLong(append(b, 'S'), s)
	}
	putSize(b, at-4)
	putSize(b, len(dst)+1)
	return b, true
}

// deathKeys are the keys of an entry of x-opt-deaths in their order (DL-14.1); ttl may be left out.
var deathKeys = [...]struct {
	name string
	typ  amqp10.Type
}{
	{"ttl", amqp10.TypeUint}, {"queue", amqp10.TypeString}, {"reason", amqp10.TypeSymbol}, {"count", amqp10.TypeUlong},
	{"first-time", amqp10.TypeTimestamp}, {"last-time", amqp10.TypeTimestamp}, {"exchange", amqp10.TypeString},
	{"routing-keys", amqp10.TypeArray},
}

func appendKey(dst []byte, key string, kind byte) []byte {
	dst = append(append(dst, byte(len(key))), key...)
	return append(dst, kind)
}

const (
	// maxText is how long a long string may be that is looked at whether it is text, in bytes: RabbitMQ takes longer ones for
	// binary.
	maxText = 4096
	// maxNested is how many tables and arrays a header of AMQP 0-9-1 may have inside each other to become an annotation or an
	// application property, which have the section around them. What is deeper is left out.
	maxNested = amqp091.MaxDepth - 2
)

// appendValue appends a field value of AMQP 0-9-1 as a value of AMQP 1.0. nested is how many tables and arrays are around it.
// ok is false for what is nested too deep; inside tables and arrays it is left out.
func appendValue(dst []byte, kind byte, content []byte, nested int) (out []byte, ok bool) {
	be := binary.BigEndian
	switch kind {
	case 'V':
		return amqp10.AppendNull(dst), true
	case 't':
		return amqp10.AppendBool(dst, content[0] != 0), true
	case 'b':
		return amqp10.AppendByte(dst, int8(content[0])), true
	case 'B':
		return amqp10.AppendUbyte(dst, content[0]), true
	case 's':
		return amqp10.AppendShort(dst, int16(be.Uint16(content))), true
	case 'u':
		return amqp10.AppendUshort(dst, be.Uint16(content)), true
	case 'I':
		return amqp10.AppendInt(dst, int32(be.Uint32(content))), true
	case 'i':
		return amqp10.AppendUint(dst, be.Uint32(content)), true
	case 'l', 'L':
		return amqp10.AppendLong(dst, int64(be.Uint64(content))), true
	case 'f':
		return amqp10.AppendFloat(dst, math.Float32frombits(be.Uint32(content))), true
	case 'd':
		return amqp10.AppendDouble(dst, math.Float64frombits(be.Uint64(content))), true
	case 'D':
		return amqp10.AppendDecimal64(dst, decimal64(content[0], be.Uint32(content[1:]))), true
	case 'T':
		return amqp10.AppendTimestamp(dst, int64(be.Uint64(content)*1000)), true // it may overflow, as in RabbitMQ
	case 'x':
		return amqp10.AppendBinary(dst, content), true
	case 'S':
		if len(content) <= maxText && utf8.Valid(content) && bytes.IndexByte(content, 0) < 0 {
			return amqp10.AppendString(dst, content), true
		}
		return amqp10.AppendBinary(dst, content), true
	case 'A':
		return appendArray(dst, content, nested)
	case 'F':
		return appendMap(dst, content, nested)
	}
	return dst, false
}

// decimal64 is a decimal of AMQP 0-9-1 in the binary integer decimal encoding of IEEE 754-2008: it has room for all of them.
func decimal64(scale uint8, value uint32) (b [8]byte) {
	const bias, coefficientBits = 398, 53
	binary.BigEndian.PutUint64(b[:], (bias-uint64(scale))<<coefficientBits|uint64(value))
	return b
}

func appendArray(dst []byte, content []byte, nested int) (out []byte, ok bool) {
	if nested >= maxNested {
		return dst, false
	}
	out, start := amqp10.BeginList(dst)
	count := 0
	amqp091.RangeArray(content, func(kind byte, value []byte) bool {
		var ok bool
		if out, ok = appendValue(out, kind, value, nested+1); ok {
			count++
		}
		return true
	})
	return amqp10.EndCompound(out, start, count), true
}

func appendMap(dst []byte, content []byte, nested int) (out []byte, ok bool) {
	if nested >= maxNested {
		return dst, false
	}
	out, start := amqp10.BeginMap(dst)
	count := 0
	amqp091.RangeHeaders(content, func(key []byte, kind byte, value []byte) bool {
		before := len(out)
		if isASCII(key) {
			out = amqp10.AppendSymbol(out, key)
		} else {
			out = amqp10.AppendString(out, key)
		}
		var ok bool
		if out, ok = appendValue(out, kind, value, nested+1); ok {
			count += 2
		} else {
			out = out[:before]
		}
		return true
	})
	return amqp10.EndCompound(out, start, count), true
}

func isASCII[S ~string | ~[]byte](s S) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

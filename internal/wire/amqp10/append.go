package amqp10

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

// AppendNull appends a null.
func AppendNull(dst []byte) []byte { return append(dst, codeNull) }

// AppendBool appends a boolean.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, codeTrue)
	}
	return append(dst, codeFalse)
}

// AppendUbyte appends a ubyte.
func AppendUbyte(dst []byte, v uint8) []byte { return append(dst, codeUbyte, v) }

// AppendUshort appends a ushort.
func AppendUshort(dst []byte, v uint16) []byte { return append(dst, codeUshort, byte(v>>8), byte(v)) }

// AppendUint appends a uint in the shortest of its encodings, as all functions do that have a choice.
func AppendUint(dst []byte, v uint32) []byte {
	switch {
	case v == 0:
		return append(dst, codeUint0)
	case v <= math.MaxUint8:
		return append(dst, codeSmallUint, byte(v))
	}
	return binary.BigEndian.AppendUint32(append(dst, codeUint), v)
}

// AppendUlong appends a ulong.
func AppendUlong(dst []byte, v uint64) []byte {
	switch {
	case v == 0:
		return append(dst, codeUlong0)
	case v <= math.MaxUint8:
		return append(dst, codeSmallUlong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, codeUlong), v)
}

// AppendByte appends a byte, which has a sign.
func AppendByte(dst []byte, v int8) []byte { return append(dst, codeByte, byte(v)) }

// AppendShort appends a short.
func AppendShort(dst []byte, v int16) []byte { return append(dst, codeShort, byte(v>>8), byte(v)) }

// AppendInt appends an int.
func AppendInt(dst []byte, v int32) []byte {
	if int32(int8(v)) == v {
		return append(dst, codeSmallInt, byte(v))
	}
	return binary.BigEndian.AppendUint32(append(dst, codeInt), uint32(v))
}

// AppendLong appends a long.
func AppendLong(dst []byte, v int64) []byte {
	if int64(int8(v)) == v {
		return append(dst, codeSmallLong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, codeLong), uint64(v))
}

// AppendFloat appends a float.
func AppendFloat(dst []byte, v float32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, codeFloat), math.Float32bits(v))
}

// AppendDouble appends a double.
func AppendDouble(dst []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, codeDouble), math.Float64bits(v))
}

// AppendDecimal32 appends a decimal32 by its octets (IEEE 754-2008, binary integer decimal encoding).
func AppendDecimal32(dst []byte, v [4]byte) []byte {
	return append(append(dst, codeDecimal32), v[:]...)
}

// AppendDecimal64 appends a decimal64 by its octets.
func AppendDecimal64(dst []byte, v [8]byte) []byte {
	return append(append(dst, codeDecimal64), v[:]...)
}

// AppendDecimal128 appends a decimal128 by its octets.
func AppendDecimal128(dst []byte, v [16]byte) []byte {
	return append(append(dst, codeDecimal128), v[:]...)
}

// AppendChar appends a char.
func AppendChar(dst []byte, r rune) []byte {
	return binary.BigEndian.AppendUint32(append(dst, codeChar), uint32(r))
}

// AppendTimestamp appends a timestamp, in milliseconds since 1970.
func AppendTimestamp(dst []byte, ms int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, codeTimestamp), uint64(ms))
}

// AppendUUID appends a uuid.
func AppendUUID(dst []byte, id [16]byte) []byte { return append(append(dst, codeUUID), id[:]...) }

// AppendBinary appends a binary.
func AppendBinary[S ~string | ~[]byte](dst []byte, b S) []byte {
	return appendVariable(dst, codeBinary8, b)
}

// AppendString appends a string. Callers have checked that it is UTF-8.
func AppendString[S ~string | ~[]byte](dst []byte, s S) []byte {
	return appendVariable(dst, codeString8, s)
}

// AppendSymbol appends a symbol. Callers have checked that it is ASCII.
func AppendSymbol[S ~string | ~[]byte](dst []byte, s S) []byte {
	return appendVariable(dst, codeSymbol8, s)
}

// appendVariable appends a value of variable width in the encoding with a size of one octet, or the one 0x10
// above with four.
func appendVariable[S ~string | ~[]byte](dst []byte, code8 byte, s S) []byte {
	if len(s) <= math.MaxUint8 {
		dst = append(dst, code8, byte(len(s)))
	} else {
		dst = binary.BigEndian.AppendUint32(append(dst, code8+0x10), uint32(len(s)))
	}
	return append(dst, s...)
}

// AppendDescriptor appends what goes before a value to describe it.
func AppendDescriptor(dst []byte, d Descriptor) []byte { return AppendUlong(append(dst, 0), uint64(d)) }

// AppendSymbolicDescriptor is AppendDescriptor for a descriptor that is a symbol.
func AppendSymbolicDescriptor(dst []byte, d string) []byte { return AppendSymbol(append(dst, 0), d) }

// BeginList begins a list: its values are appended next. EndCompound ends it, with the start that
// BeginList returns.
func BeginList(dst []byte) (out []byte, start int) { return append(dst, codeList8, 0, 0), len(dst) }

// BeginMap begins a map as BeginList does a list: keys and values follow in turn.
func BeginMap(dst []byte) (out []byte, start int) { return append(dst, codeMap8, 0, 0), len(dst) }

// EndCompound ends the list or map that began at start and has count values, keys of a map included.
func EndCompound(dst []byte, start, count int) []byte { return endCompound(dst, start, count) }

// AppendSymbols appends an array of symbols.
func AppendSymbols(dst []byte, symbols ...string) []byte {
	size := 2 // count and code
	long := false
	for _, s := range symbols {
		size += 1 + len(s)
		long = long || len(s) > math.MaxUint8
	}
	be := binary.BigEndian
	if size > math.MaxUint8 || long || len(symbols) > math.MaxUint8 {
		size += 3 + 3*len(symbols)
		dst = be.AppendUint32(be.AppendUint32(append(dst, codeArray32), uint32(size)), uint32(len(symbols)))
		dst = append(dst, codeSymbol32)
		for _, s := range symbols {
			dst = append(be.AppendUint32(dst, uint32(len(s))), s...)
		}
		return dst
	}
	dst = append(dst, codeArray8, byte(size), byte(len(symbols)), codeSymbol8)
	for _, s := range symbols {
		dst = append(append(dst, byte(len(s))), s...)
	}
	return dst
}

// fullCodes are the widest encodings of types that have several: an array has one for all its elements.
var fullCodes = map[Type]byte{
	TypeBoolean: codeBoolean, TypeUint: codeUint, TypeUlong: codeUlong, TypeInt: codeInt, TypeLong: codeLong, TypeBinary: codeBinary32,
	TypeString: codeString32, TypeSymbol: codeSymbol32, TypeList: codeList32, TypeMap: codeMap32, TypeArray: codeArray32,
}

// AppendArray appends an array of values that have the same type and the same descriptors: all others are
// ErrType. More than 255 nulls are ErrCount, since no reader here would take them.
func AppendArray(dst []byte, elements ...Value) ([]byte, error) {
	start := len(dst)
	dst = append(dst, codeArray32, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(elements)))
	first := Value{code: codeNull}
	if len(elements) > 0 {
		first = elements[0]
	}
	code, ok := fullCodes[types[first.code]]
	if !ok {
		code = first.code
	}
	dst = append(append(dst, first.descriptors...), code)
	for _, v := range elements {
		if types[v.code] != types[first.code] || v.code == 0 || !bytes.Equal(v.descriptors, first.descriptors) {
			return dst[:start], ErrType
		}
		dst = v.appendFull(dst, code)
	}
	if code == codeNull && len(elements) > maxEmptyElements {
		return dst[:start], ErrCount
	}
	binary.BigEndian.PutUint32(dst[start+1:], uint32(len(dst)-start-5))
	return dst, nil
}

// appendFull appends what follows the format code of the value in the widest encoding of its type.
func (v *Value) appendFull(dst []byte, code byte) []byte {
	be := binary.BigEndian
	switch code {
	case codeBoolean:
		if v.code == codeTrue || v.code == codeBoolean && v.content[0] != 0 {
			return append(dst, 1)
		}
		return append(dst, 0)
	case codeUint:
		return be.AppendUint32(dst, uint32(bigEndian(v.content)))
	case codeUlong:
		return be.AppendUint64(dst, bigEndian(v.content))
	case codeInt:
		return be.AppendUint32(dst, uint32(signed(v.content)))
	case codeLong:
		return be.AppendUint64(dst, uint64(signed(v.content)))
	case codeBinary32, codeString32, codeSymbol32:
		return append(be.AppendUint32(dst, uint32(len(v.content))), v.content...)
	case codeList32, codeMap32, codeArray32:
		items := v.content[sizeWidth(v.code):]
		dst = be.AppendUint32(be.AppendUint32(dst, uint32(4+len(items))), v.count())
		return append(dst, items...)
	}
	return append(dst, v.content...)
}

// Append appends the value as it was read: the same constructor and the same content. No value is appended as
// null.
func (v Value) Append(dst []byte) []byte {
	if v.code == 0 {
		return append(dst, codeNull)
	}
	dst = append(append(dst, v.descriptors...), v.code)
	switch sizeWidth(v.code) {
	case 1:
		dst = append(dst, byte(len(v.content)))
	case 4:
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(v.content)))
	}
	return append(dst, v.content...)
}

// Size returns how many octets Append appends.
func (v Value) Size() int {
	if v.code == 0 {
		return 1
	}
	return len(v.descriptors) + 1 + sizeWidth(v.code) + len(v.content)
}

// MustValue returns the value that b is, which the caller has encoded, to be a field of a struct. It panics if
// b is anything else than one value: bytes of a peer are for ReadValue.
func MustValue(b []byte) Value {
	v, rest, err := ReadValue(b)
	if err == nil && len(rest) > 0 {
		err = ErrTrailing
	}
	if err != nil {
		panic(fmt.Sprintf("amqp10: % x is no value: %v", b, err))
	}
	return v
}

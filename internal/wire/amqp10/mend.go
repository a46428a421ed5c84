package amqp10

// Mend returns a message whose header, properties and application-properties are as the standard has them, from one in which values are
// of another type: RabbitMQ takes such messages. A number becomes one of the right type if it fits, a text becomes a string or a symbol,
// and what remains is left out: fields become null, entries of application-properties go. A user-id that is no binary says who
// sends, so it is not mended. ok is false for what cannot be mended, such as a section that is not well-formed.
func Mend(b []byte) (mended []byte, ok bool) {
	for len(b) > 0 {
		d, v, rest, err := NextSection(b)
		if err != nil {
			return nil, false
		}
		raw := b[:len(b)-len(rest)]
		b = rest
		switch d {
		case DescriptorHeader:
			mended, ok = mendList(AppendDescriptor(mended, d), v, headerTypes)
		case DescriptorProperties:
			mended, ok = mendList(AppendDescriptor(mended, d), v, propertyTypes)
		case DescriptorApplicationProperties:
			mended, ok = mendMap(AppendDescriptor(mended, d), v)
		default:
			mended, ok = append(mended, raw...), true
		}
		if !ok {
			return nil, false
		}
	}
	return mended, true
}

// typeMessageID stands for the types of message ids.
const typeMessageID Type = 255

// The types of the fields of header (3.2.1) and properties (3.2.4).
var (
	headerTypes   = []Type{TypeBoolean, TypeUbyte, TypeUint, TypeBoolean, TypeUint}
	propertyTypes = []Type{
		PropertyMessageID: typeMessageID, PropertyUserID: TypeBinary, PropertyTo: TypeString, PropertySubject: TypeString, PropertyReplyTo: TypeString,
		PropertyCorrelationID: typeMessageID, PropertyContentType: TypeSymbol, PropertyContentEncoding: TypeSymbol,
		PropertyAbsoluteExpiryTime: TypeTimestamp, PropertyCreationTime: TypeTimestamp, PropertyGroupID: TypeString,
		PropertyGroupSequence: TypeUint, PropertyReplyToGroupID: TypeString,
	}
)

func mendList(dst []byte, section Value, fields []Type) ([]byte, bool) {
	dst, start := BeginList(dst)
	items, n := section.ItemsBelow(), 0
	for v, ok := items.Next(); ok; v, ok = items.Next() {
		if n == len(fields) || v.check() != nil {
			return nil, false
		}
		if fields[n] == TypeBinary && !v.IsNull() && v.Type() != TypeBinary {
			return nil, false
		}
		dst = appendAs(dst, v, fields[n])
		n++
	}
	return EndCompound(dst, start, n), items.Err() == nil
}

func mendMap(dst []byte, section Value) ([]byte, bool) {
	dst, start := BeginMap(dst)
	items, n := section.ItemsBelow(), 0
	for key, ok := items.Next(); ok; key, ok = items.Next() {
		v, ok := items.Next()
		if !ok || key.check() != nil || v.check() != nil {
			return nil, false
		}
		if s, ok := words(key); ok {
			dst = v.Append(AppendString(dst, s))
			n += 2
		}
	}
	return EndCompound(dst, start, n), items.Err() == nil
}

// words is a string or a symbol.
func words(v Value) ([]byte, bool) {
	if s, ok := v.Text(); ok {
		return s, true
	}
	return v.Symbol()
}

// number is a number that is not negative, of any type of whole numbers.
func number(v Value) (uint64, bool) {
	if n, ok := v.Uint64(); ok {
		return n, true
	}
	n, ok := v.Int64()
	if ok && n >= 0 {
		return uint64(n), true
	}
	ms, ok := v.Timestamp()
	return uint64(ms), ok && ms >= 0
}

// appendAs appends a value as the type, or null if it is none.
func appendAs(dst []byte, v Value, t Type) []byte {
	is := v.Type()
	if is == t || t == typeMessageID && (is == TypeUlong || is == TypeUUID || is == TypeBinary || is == TypeString) {
		return v.Append(dst)
	}
	if s, ok := words(v); ok {
		switch {
		case t == TypeString || t == typeMessageID:
			return AppendString(dst, s)
		case t == TypeSymbol && isASCII(s):
			return AppendSymbol(dst, s)
		}
	}
	if n, ok := number(v); ok {
		switch {
		case t == TypeUbyte && n <= 1<<8-1:
			return AppendUbyte(dst, uint8(n))
		case t == TypeUint && n <= 1<<32-1:
			return AppendUint(dst, uint32(n))
		case t == typeMessageID:
			return AppendUlong(dst, n)
		case t == TypeTimestamp && n < 1<<63:
			return AppendTimestamp(dst, int64(n))
		}
	}
	return AppendNull(dst)
}

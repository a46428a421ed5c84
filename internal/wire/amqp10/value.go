package amqp10

import (
	"bytes"
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// maxDepth is how many lists, maps, arrays and descriptors a value may have around it.
const maxDepth = 100

// maxEmptyElements is how many elements an array may have that take no octets, as nulls: nothing else
// bounds them. An array8 cannot have more.
const maxEmptyElements = 255

// A Value is one encoded value where it lies: a view of bytes. The zero Value is none; null is a value.
//
// What ReadValue and iterators return ends within its data, and its count is one that its data can
// have. Nothing else of it is checked before it is read (see Check).
type Value struct {
	descriptors []byte // as encoded: a zero octet and a descriptor, of each, the outermost first
	content     []byte // what follows the format code, and the size if there is one
	code        byte
	depth       uint8 // how many lists, maps, arrays and descriptors are around it
}

// ReadValue reads the value at the start of b. Errors are ErrTruncated, ErrFormatCode, ErrDescriptor,
// ErrTooDeep and ErrCount.
func ReadValue(b []byte) (v Value, rest []byte, err error) {
	if rest, err = v.read(b, 0); err != nil {
		return Value{}, nil, err
	}
	return v, rest, nil
}

// read makes v the value at the start of b, which has depth lists, maps and arrays around it.
func (v *Value) read(b []byte, depth uint8) (rest []byte, err error) {
	if rest, err = v.readConstructor(b, depth); err != nil {
		return nil, err
	}
	return v.readContent(rest)
}

// readConstructor reads descriptors and format code.
func (v *Value) readConstructor(b []byte, depth uint8) (rest []byte, err error) {
	n := 0
	if len(b) >= 4 && b[0] == 0 && b[1] == codeSmallUlong && depth < maxDepth { // as nearly all descriptors are
		depth, n = depth+1, 3
	}
	for n < len(b) && b[n] == 0 {
		if depth++; depth > maxDepth {
			return nil, ErrTooDeep
		}
		size, err := descriptorSize(b[n+1:])
		if err != nil {
			return nil, err
		}
		n += 1 + size
	}
	if n == len(b) {
		return nil, ErrTruncated
	}
	if types[b[n]] == TypeNone {
		return nil, ErrFormatCode
	}
	if v.descriptors = nil; n > 0 {
		v.descriptors = b[:n:n]
	}
	v.code, v.depth = b[n], depth
	return b[n+1:], nil
}

// descriptorSize is how long the descriptor at the start of b is, its format code included.
func descriptorSize(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, ErrTruncated
	}
	switch types[b[0]] {
	case TypeNone:
		if b[0] != 0 {
			return 0, ErrFormatCode
		}
		return 0, ErrDescriptor
	case TypeList, TypeMap, TypeArray:
		return 0, ErrDescriptor
	}
	_, n, err := cutContent(b[0], b[1:])
	return 1 + n, err
}

// readContent reads the content of a value whose constructor is known.
func (v *Value) readContent(b []byte) (rest []byte, err error) {
	content, n, err := cutContent(v.code, b)
	if err != nil {
		return nil, err
	}
	v.content = content
	if v.code >= codeList8 {
		if err := v.checkCount(); err != nil {
			return nil, err
		}
	}
	return b[n:], nil
}

// cutContent cuts the content of a value off the start of b; n is how much of b it takes up with its size.
func cutContent(code byte, b []byte) (content []byte, n int, err error) {
	if width := fixedWidth(code); width >= 0 {
		if width > len(b) {
			return nil, 0, ErrTruncated
		}
		return b[:width:width], width, nil
	}
	width, size := 1, uint64(0)
	if sizeWidth(code) == 1 {
		if len(b) < 1 {
			return nil, 0, ErrTruncated
		}
		size = uint64(b[0])
	} else {
		if len(b) < 4 {
			return nil, 0, ErrTruncated
		}
		width, size = 4, uint64(binary.BigEndian.Uint32(b))
	}
	if size > uint64(len(b)-width) {
		return nil, 0, ErrTruncated
	}
	n = width + int(size)
	return b[width:n:n], n, nil
}

// checkCount holds the count of a list, map or array against its size. Whatever follows then is bounded by
// bytes that arrived.
func (v *Value) checkCount() error {
	width := sizeWidth(v.code)
	if len(v.content) < width {
		return ErrTruncated
	}
	count, octets := uint64(v.count()), uint64(len(v.content)-width)
	switch types[v.code] {
	case TypeMap:
		if count%2 != 0 {
			return ErrCount
		}
	case TypeArray:
		var element Value
		rest, err := element.readConstructor(v.content[width:], v.depth+1)
		if err != nil {
			return err
		}
		octets = uint64(len(rest))
		switch fixed := fixedWidth(element.code); fixed {
		case -1:
		case 0:
			if count > maxEmptyElements || octets > 0 {
				return ErrCount
			}
			return nil
		default:
			if count*uint64(fixed) != octets {
				return ErrCount
			}
			return nil
		}
	}
	if count > octets {
		return ErrCount
	}
	return nil
}

// count is the count of a list, map or array.
func (v Value) count() uint32 {
	switch sizeWidth(v.code) {
	case 1:
		return uint32(v.content[0])
	case 4:
		return binary.BigEndian.Uint32(v.content)
	}
	return 0 // list0
}

// Type returns the type; TypeDescribed for every described value.
func (v Value) Type() Type {
	if v.descriptors != nil {
		return TypeDescribed
	}
	return types[v.code]
}

// IsNull reports whether the value is null or none: both mean the same to a field (1.4).
func (v Value) IsNull() bool { return v.descriptors == nil && v.code <= codeNull }

// IsConstant reports whether the format code alone is the value: there are such codes for null, true, false, 0 and the empty
// list. An array of them takes no octets for its elements, however many there are.
func (v Value) IsConstant() bool {
	return v.descriptors == nil && v.code != 0 && fixedWidth(v.code) == 0
}

// Len returns how many values a list, a map (keys and values) or an array has; 0 of all others.
func (v Value) Len() int {
	if v.descriptors == nil && (v.code >= codeList8) {
		return int(v.count())
	}
	return 0
}

// scalar returns the content if the value has the type.
func (v Value) scalar(t Type) ([]byte, bool) { return v.content, v.Type() == t }

// Bool returns a boolean.
func (v Value) Bool() (b, ok bool) {
	if v.Type() != TypeBoolean {
		return false, false
	}
	switch v.code {
	case codeTrue:
		return true, true
	case codeFalse:
		return false, true
	}
	return v.content[0] == 1, v.content[0] <= 1
}

// Uint64 returns an unsigned integer of any width.
func (v Value) Uint64() (n uint64, ok bool) {
	switch v.Type() {
	case TypeUbyte, TypeUshort, TypeUint, TypeUlong:
		return bigEndian(v.content), true
	}
	return 0, false
}

// Int64 returns an integer of any width, signed or not, if it fits.
func (v Value) Int64() (n int64, ok bool) {
	if u, ok := v.Uint64(); ok {
		return int64(u), u <= math.MaxInt64
	}
	switch v.Type() {
	case TypeByte, TypeShort, TypeInt, TypeLong:
		return signed(v.content), true
	}
	return 0, false
}

// Float64 returns a float or a double.
func (v Value) Float64() (f float64, ok bool) {
	switch v.Type() {
	case TypeFloat:
		return float64(math.Float32frombits(binary.BigEndian.Uint32(v.content))), true
	case TypeDouble:
		return math.Float64frombits(binary.BigEndian.Uint64(v.content)), true
	}
	return 0, false
}

// Char returns a character.
func (v Value) Char() (r rune, ok bool) {
	b, ok := v.scalar(TypeChar)
	if !ok {
		return 0, false
	}
	n := binary.BigEndian.Uint32(b)
	return rune(n), n <= utf8.MaxRune && utf8.ValidRune(rune(n))
}

// Timestamp returns milliseconds since 1970.
func (v Value) Timestamp() (ms int64, ok bool) {
	b, ok := v.scalar(TypeTimestamp)
	if !ok {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(b)), true
}

// UUID returns a uuid.
func (v Value) UUID() (id [16]byte, ok bool) {
	b, ok := v.scalar(TypeUUID)
	if !ok {
		return id, false
	}
	return [16]byte(b), true
}

// Decimal returns the 4, 8 or 16 octets of a decimal32, decimal64 or decimal128: nothing here calculates
// with them.
func (v Value) Decimal() (octets []byte, ok bool) {
	switch v.Type() {
	case TypeDecimal32, TypeDecimal64, TypeDecimal128:
		return v.content, true
	}
	return nil, false
}

// Binary returns the octets of a binary.
func (v Value) Binary() (b []byte, ok bool) { return v.variable(TypeBinary) }

// Text returns a string, if it is UTF-8.
func (v Value) Text() (s []byte, ok bool) {
	s, ok = v.variable(TypeString)
	return s, ok && utf8.Valid(s)
}

// Symbol returns a symbol, if it is ASCII.
func (v Value) Symbol() (s []byte, ok bool) {
	s, ok = v.variable(TypeSymbol)
	return s, ok && isASCII(s)
}

func (v Value) variable(t Type) ([]byte, bool) {
	if b, ok := v.scalar(t); ok {
		return b, true
	}
	return nil, false
}

// Descriptor returns the outermost descriptor, or 0 if the value has none, or one that is not of the
// standard. Symbolic and numeric forms are the same descriptor.
func (v Value) Descriptor() Descriptor {
	if len(v.descriptors) == 3 && v.descriptors[1] == codeSmallUlong {
		return known(uint64(v.descriptors[2]))
	}
	d := v.DescriptorValue()
	switch d.Type() {
	case TypeUlong:
		return known(bigEndian(d.content))
	case TypeSymbol:
		// A longer one stays unread: the elements of an array have it in common, and each may be asked for it.
		if len(d.content) <= maxDescriptorName {
			return descriptorsByName[string(d.content)]
		}
	}
	return 0
}

// known is the descriptor of the number, 0 if the standard has none.
func known(number uint64) Descriptor {
	if number < uint64(len(descriptorNames)) && descriptorNames[number] != "" {
		return Descriptor(number)
	}
	return 0
}

// DescriptorValue returns the outermost descriptor as it stands, or none if the value is not described. It is a
// ulong or a symbol; all other types are reserved (1.5), and read.
func (v Value) DescriptorValue() Value {
	if v.descriptors == nil {
		return Value{}
	}
	code := v.descriptors[1]
	content, _, err := cutContent(code, v.descriptors[2:])
	if err != nil { // readConstructor has read it
		return Value{}
	}
	return Value{code: code, content: content}
}

// Underlying returns the value without its outermost descriptor. A value that has none is its own.
func (v Value) Underlying() Value {
	if v.descriptors == nil {
		return v
	}
	if len(v.descriptors) == 3 && v.descriptors[1] == codeSmallUlong {
		v.descriptors = nil
		return v
	}
	size, err := descriptorSize(v.descriptors[1:])
	if err != nil { // readConstructor has read it
		return Value{}
	}
	if v.descriptors = v.descriptors[1+size:]; len(v.descriptors) == 0 {
		v.descriptors = nil
	}
	return v
}

// describes reports whether the value has one descriptor and below it the type.
func (v *Value) describes(t Type) bool {
	return types[v.code] == t && (len(v.descriptors) == 3 || v.Underlying().descriptors == nil)
}

// Equal reports whether two values are the same, in the same encoding.
func (v Value) Equal(w Value) bool {
	return v.code == w.code && bytes.Equal(v.descriptors, w.descriptors) && bytes.Equal(v.content, w.content)
}

// Check looks at everything in the value, in time linear in its size. It returns the first error:
// one of ReadValue's, ErrTrailing, ErrUTF8, ErrASCII or ErrValue. It does not look for equal keys of a map.
func (v Value) Check() error { return v.check() }

func (v *Value) check() error {
	if v.descriptors != nil {
		if err := v.checkDescriptors(); err != nil {
			return err
		}
	}
	switch types[v.code] {
	case TypeList, TypeMap, TypeArray:
		items := v.items()
		return items.check()
	}
	return checkScalar(v.code, v.content)
}

// checkScalar looks at the content of a value that is no list, map or array.
func checkScalar(code byte, content []byte) error {
	switch types[code] {
	case TypeBoolean:
		if code == codeBoolean && content[0] > 1 {
			return ErrValue
		}
	case TypeChar:
		if n := bigEndian(content); n > utf8.MaxRune || !utf8.ValidRune(rune(n)) {
			return ErrValue
		}
	case TypeString:
		if !utf8.Valid(content) {
			return ErrUTF8
		}
	case TypeSymbol:
		if !isASCII(content) {
			return ErrASCII
		}
	}
	return nil
}

func (v *Value) checkDescriptors() error {
	if len(v.descriptors) == 3 && v.descriptors[1] == codeSmallUlong { // as nearly all are
		return nil
	}
	for d := *v; d.descriptors != nil; d = d.Underlying() {
		one := d.DescriptorValue()
		if err := checkScalar(one.code, one.content); err != nil {
			return err
		}
	}
	return nil
}

func (it *Items) check() error {
	if it.elements && it.err == nil {
		if err := it.element.checkDescriptors(); err != nil {
			return err
		}
		it.element.descriptors = nil // once is enough: they are every element's
		if fixedWidth(it.element.code) == 0 {
			it.left = min(it.left, 1) // they are all the same
		}
	}
	var item Value
	for it.next(&item) {
		if err := item.check(); err != nil {
			return err
		}
	}
	return it.err
}

// checkMap is check for what is below the descriptors of a value, which has to be a map with keys of one of two
// types; else it is ErrType.
func (v *Value) checkMap(a, b Type) error {
	if types[v.code] != TypeMap {
		return ErrType
	}
	items := v.items()
	var item Value
	for items.next(&item) {
		if t := item.Type(); t != a && t != b {
			return ErrType
		}
		if err := item.check(); err != nil {
			return err
		}
		if !items.next(&item) {
			break
		}
		if err := item.check(); err != nil {
			return err
		}
	}
	return items.err
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// bigEndian is the number of up to 8 octets; of none it is 0, as uint0 and ulong0 say.
func bigEndian(b []byte) (n uint64) {
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

// signed is the number of 1, 2, 4 or 8 octets in two's complement.
func signed(b []byte) int64 {
	shift := 64 - 8*len(b)
	return int64(bigEndian(b)<<shift) >> shift
}

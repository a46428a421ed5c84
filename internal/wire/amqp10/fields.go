package amqp10

import "encoding/binary"

// A compositeType is what is known of a composite type besides its struct.
type compositeType struct {
	descriptor Descriptor
	section    string // of the standard
	fields     []compositeField
}

type compositeField struct {
	name      string
	mandatory bool
	secret    bool
}

// name is the name in the standard: "transfer" of amqp:transfer:list.
func (t *compositeType) name() string {
	const before, after = len("amqp:"), len(":list")
	name := t.descriptor.String()
	return name[before : len(name)-after]
}

// typeOf is the composite type with the descriptor, nil if there is none.
func typeOf(d Descriptor) *compositeType {
	if d < Descriptor(len(compositeTypes)) {
		return compositeTypes[d]
	}
	return nil
}

// fieldReader reads the fields of a composite value in their order. After the first error it returns zero
// values; end returns that error. Each method returns false for a field that is null or left out.
type fieldReader struct {
	typ   *compositeType
	rest  []byte
	left  uint32
	at    int // the next field
	depth uint8
	err   error
}

// readFields begins to read v as the type.
func readFields(v Value, t *compositeType) fieldReader {
	r := fieldReader{typ: t, depth: v.depth + 1}
	if v.descriptors == nil || v.Descriptor() != t.descriptor || !v.describes(TypeList) {
		r.fail(ErrType)
		return r
	}
	r.left = v.count()
	r.rest = v.content[sizeWidth(v.code):]
	if r.left > uint32(len(t.fields)) {
		r.fail(ErrTooManyFields)
	}
	return r
}

func (r *fieldReader) fail(err error) {
	if r.err != nil {
		return
	}
	e := &DecodeError{Type: r.typ.name(), Section: r.typ.section, Err: err}
	if r.at > 0 {
		e.Field = r.typ.fields[r.at-1].name
	}
	r.err = e
}

// failed is the zero value of what a reader returns.
func failed[T any](r *fieldReader, err error) (v T, ok bool) {
	r.fail(err)
	return v, false
}

// present goes to the next field and reports whether it has a value; its code then is r.rest[0].
func (r *fieldReader) present() bool {
	r.at++
	if r.err != nil {
		return false
	}
	if r.left > 0 {
		r.left--
		switch {
		case len(r.rest) == 0:
			r.fail(ErrTruncated)
			return false
		case r.rest[0] != codeNull:
			return true
		}
		r.rest = r.rest[1:]
	}
	if r.typ.fields[r.at-1].mandatory {
		r.fail(ErrMandatory)
	}
	return false
}

// scalar reads a field of the type; small numbers and their full forms have the same type.
func (r *fieldReader) scalar(t Type) ([]byte, byte, bool) {
	if !r.present() {
		return nil, 0, false
	}
	return r.cut(t)
}

// cut is scalar for a field that is present.
func (r *fieldReader) cut(t Type) ([]byte, byte, bool) {
	code := r.rest[0]
	if types[code] != t {
		r.failType(code)
		return nil, 0, false
	}
	content, n, err := cutContent(code, r.rest[1:])
	if err != nil {
		r.fail(err)
		return nil, 0, false
	}
	r.rest = r.rest[1+n:]
	return content, code, true
}

// failType is the error for a field whose value begins with an octet that its type does not.
func (r *fieldReader) failType(code byte) {
	if code != 0 && types[code] == TypeNone {
		r.fail(ErrFormatCode)
		return
	}
	r.fail(ErrType)
}

func (r *fieldReader) boolean() (v, ok bool) {
	if !r.present() {
		return false, false
	}
	if code := r.rest[0]; code == codeTrue || code == codeFalse {
		r.rest = r.rest[1:]
		return code == codeTrue, true
	}
	content, _, ok := r.cut(TypeBoolean)
	switch {
	case !ok:
		return false, false
	case content[0] > 1:
		return failed[bool](r, ErrValue)
	}
	return content[0] == 1, true
}

func (r *fieldReader) ubyte() (uint8, bool) {
	content, _, ok := r.scalar(TypeUbyte)
	return uint8(bigEndian(content)), ok
}

func (r *fieldReader) ushort() (uint16, bool) {
	content, _, ok := r.scalar(TypeUshort)
	return uint16(bigEndian(content)), ok
}

// uint reads most of what frames have, and so looks at each encoding itself.
func (r *fieldReader) uint() (uint32, bool) {
	if !r.present() {
		return 0, false
	}
	switch b := r.rest; {
	case b[0] == codeUint0:
		r.rest = b[1:]
		return 0, true
	case b[0] == codeSmallUint && len(b) >= 2:
		r.rest = b[2:]
		return uint32(b[1]), true
	case b[0] == codeUint && len(b) >= 5:
		r.rest = b[5:]
		return binary.BigEndian.Uint32(b[1:]), true
	}
	_, _, ok := r.cut(TypeUint) // an error
	return 0, ok
}

func (r *fieldReader) ulong() (uint64, bool) {
	content, _, ok := r.scalar(TypeUlong)
	return bigEndian(content), ok
}

func (r *fieldReader) timestamp() (int64, bool) {
	content, _, ok := r.scalar(TypeTimestamp)
	return int64(bigEndian(content)), ok
}

func (r *fieldReader) binary() []byte {
	content, _, _ := r.scalar(TypeBinary)
	return content
}

func (r *fieldReader) text() []byte {
	return r.checked(TypeString)
}

func (r *fieldReader) symbol() []byte {
	return r.checked(TypeSymbol)
}

// checked reads a string or symbol and looks at its characters.
func (r *fieldReader) checked(t Type) []byte {
	content, code, ok := r.scalar(t)
	if !ok {
		return nil
	}
	if err := checkScalar(code, content); err != nil {
		r.fail(err)
		return nil
	}
	return content
}

// choiceSymbol reads a restricted symbol as its place among the names.
func (r *fieldReader) choiceSymbol(names []string) (uint8, bool) {
	s := r.symbol()
	if s == nil {
		return 0, false
	}
	for i, name := range names {
		if string(s) == name {
			return uint8(i), true
		}
	}
	return failed[uint8](r, ErrValue)
}

// choice reports whether a restricted number is one of n.
func (r *fieldReader) choice(v uint64, n int) bool {
	if v >= uint64(n) {
		r.fail(ErrValue)
		return false
	}
	return true
}

// read reads a field of any type into v. The caller looks at what is in it, and judges.
func (r *fieldReader) read(v *Value) bool {
	if !r.present() {
		return false
	}
	rest, err := v.read(r.rest, r.depth)
	if err != nil {
		*v = Value{}
		r.fail(err)
		return false
	}
	r.rest = rest
	return true
}

// judged is v, or none if there is something wrong with it.
func (r *fieldReader) judged(v *Value, err error) Value {
	if err != nil {
		r.fail(err)
		return Value{}
	}
	return *v
}

func (r *fieldReader) value() (v Value) {
	if !r.read(&v) {
		return v
	}
	return r.judged(&v, v.check())
}

func (r *fieldReader) described() (v Value) {
	if !r.read(&v) {
		return v
	}
	return r.judged(&v, v.checkIf(v.descriptors != nil))
}

func (r *fieldReader) mapping() (v Value) {
	if !r.read(&v) {
		return v
	}
	return r.judged(&v, v.checkIf(v.Type() == TypeMap))
}

func (r *fieldReader) fields() (v Value) {
	if !r.read(&v) {
		return v
	}
	return r.judged(&v, checkFields(&v))
}

func (r *fieldReader) symbols() (v Value) {
	if !r.read(&v) {
		return v
	}
	return r.judged(&v, checkSymbols(&v))
}

func (r *fieldReader) messageID() (v Value) {
	if !r.read(&v) {
		return v
	}
	return r.judged(&v, checkMessageID(&v))
}

// checkFields looks for a map with symbols for keys (2.8.13), or strings: go-amqp writes them in the info of an
// error, and RabbitMQ takes them.
func checkFields(v *Value) error {
	if v.descriptors != nil {
		return ErrType
	}
	return v.checkMap(TypeSymbol, TypeString)
}

// checkSymbols looks for a symbol or an array of symbols.
func checkSymbols(v *Value) error {
	if v.Type() == TypeArray {
		return v.checkIf(v.items().element.Type() == TypeSymbol)
	}
	return v.checkIf(v.Type() == TypeSymbol)
}

func checkMessageID(v *Value) error {
	switch v.Type() {
	case TypeUlong, TypeUUID, TypeBinary, TypeString:
		return v.check()
	}
	return ErrType
}

// checkIf is check for a value that has a type which its place takes.
func (v *Value) checkIf(takes bool) error {
	if !takes {
		return ErrType
	}
	return v.check()
}

func (r *fieldReader) error() *Error {
	v := r.described()
	if v.code == 0 || r.err != nil {
		return nil
	}
	e := new(Error)
	if err := e.Decode(v); err != nil {
		if r.err == nil {
			r.err = err // it names type and field itself
		}
		return nil
	}
	return e
}

// end returns the first error; octets left over are one.
func (r *fieldReader) end() error {
	if r.err == nil && (r.left > 0 || len(r.rest) > 0) {
		r.at = 0
		r.fail(ErrTrailing)
	}
	return r.err
}

// listWriter writes the fields of a composite value: as a list8, which end makes a list32 if it must.
type listWriter struct {
	dst   []byte
	start int // of the list's format code
	kept  int // where the last field ends that is not null
	count int // of fields so far
	keep  int // of fields up to there
}

// compoundHead8 and compoundHead32 are how many octets the code, size and count of a list or map take.
const (
	compoundHead8  = 3
	compoundHead32 = 9
)

func writeFields(dst []byte, d Descriptor) listWriter {
	start := len(dst) + 3
	dst = append(dst, 0, codeSmallUlong, byte(d), codeList8, 0, 0)
	return listWriter{dst: dst, start: start, kept: len(dst)}
}

// end leaves out trailing nulls and completes the list.
func (w *listWriter) end() []byte {
	if w.keep == 0 {
		return append(w.dst[:w.start], codeList0)
	}
	return endCompound(w.dst[:w.kept], w.start, w.keep)
}

// wrote counts a field that is not null.
func (w *listWriter) wrote() {
	w.count++
	w.kept, w.keep = len(w.dst), w.count
}

func (w *listWriter) null() {
	w.dst = append(w.dst, codeNull)
	w.count++
}

func (w *listWriter) boolean(v bool) {
	w.dst = AppendBool(w.dst, v)
	w.wrote()
}

func (w *listWriter) ubyte(v uint8) {
	w.dst = AppendUbyte(w.dst, v)
	w.wrote()
}

func (w *listWriter) ushort(v uint16) {
	w.dst = AppendUshort(w.dst, v)
	w.wrote()
}

func (w *listWriter) uint(v uint32) {
	w.dst = AppendUint(w.dst, v)
	w.wrote()
}

func (w *listWriter) ulong(v uint64) {
	w.dst = AppendUlong(w.dst, v)
	w.wrote()
}

func (w *listWriter) timestamp(v int64) {
	w.dst = AppendTimestamp(w.dst, v)
	w.wrote()
}

func (w *listWriter) binary(b []byte) {
	if b == nil {
		w.null()
		return
	}
	w.dst = AppendBinary(w.dst, b)
	w.wrote()
}

func (w *listWriter) text(s []byte) {
	if s == nil {
		w.null()
		return
	}
	w.dst = AppendString(w.dst, s)
	w.wrote()
}

func (w *listWriter) symbol(s []byte) {
	if s == nil {
		w.null()
		return
	}
	w.dst = AppendSymbol(w.dst, s)
	w.wrote()
}

func (w *listWriter) value(v Value) {
	if v.IsNull() {
		w.null()
		return
	}
	w.dst = v.Append(w.dst)
	w.wrote()
}

func (w *listWriter) described(v Value) { w.value(v) }
func (w *listWriter) mapping(v Value)   { w.value(v) }
func (w *listWriter) fields(v Value)    { w.value(v) }
func (w *listWriter) symbols(v Value)   { w.value(v) }
func (w *listWriter) messageID(v Value) { w.value(v) }

func (w *listWriter) error(e *Error) {
	if e == nil {
		w.null()
		return
	}
	w.dst = e.Append(w.dst)
	w.wrote()
}

// notNil is b, empty if it is nil: a mandatory field is never null.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// endCompound fills in size and count of the list8 or map8 that began at start, or makes it a list32 or
// map32 if it is too large for them.
func endCompound(dst []byte, start, count int) []byte {
	size := len(dst) - start - 2
	if size <= 255 && count <= 255 {
		dst[start+1], dst[start+2] = byte(size), byte(count)
		return dst
	}
	const more = compoundHead32 - compoundHead8
	dst = append(dst, make([]byte, more)...)
	copy(dst[start+compoundHead32:], dst[start+compoundHead8:len(dst)-more])
	dst[start] += codeList32 - codeList8
	binary.BigEndian.PutUint32(dst[start+1:], uint32(size-1+4))
	binary.BigEndian.PutUint32(dst[start+5:], uint32(count))
	return dst
}

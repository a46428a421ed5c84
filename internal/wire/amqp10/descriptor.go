package amqp10

import "strconv"

// A Descriptor says what a described value is (1.5). The standard's have a number, as 0x14, and a symbol, as
// amqp:transfer:list; both are read, the number is written.
type Descriptor uint64

// String returns the symbolic descriptor, or the number if the standard has none.
func (d Descriptor) String() string {
	if d < Descriptor(len(descriptorNames)) && descriptorNames[d] != "" {
		return descriptorNames[d]
	}
	return "0x" + strconv.FormatUint(uint64(d), 16)
}

// maxDescriptorName is how long the longest symbolic descriptor of the standard is.
var maxDescriptorName = 0

// descriptorsByName are the descriptors by their symbols.
var descriptorsByName = make(map[string]Descriptor, len(descriptorNames))

func init() {
	for d, name := range descriptorNames {
		if name != "" {
			descriptorsByName[name] = Descriptor(d)
			maxDescriptorName = max(maxDescriptorName, len(name))
		}
	}
}

// A Composite is a composite type (1.4): a struct for each, as Transfer, generated from spec/amqp10.txt.
type Composite interface {
	// Descriptor returns the descriptor of the type.
	Descriptor() Descriptor
	// Decode reads the fields of a value that is described as this type; what it decodes aliases the
	// value. An error is a *DecodeError.
	Decode(v Value) error
	// Append appends the described list. Trailing fields that are absent are left out.
	Append(dst []byte) []byte
}

// NewComposite returns an empty value of the composite type, nil if there is none with the descriptor.
func NewComposite(d Descriptor) Composite {
	if d < Descriptor(len(composites)) && composites[d] != nil {
		return composites[d]()
	}
	return nil
}

// An Optional is a field that can be absent. Decode sets Value to the field's default if it is; Append writes
// Value if it is Set.
type Optional[T any] struct {
	Value T
	Set   bool
}

// Some returns an Optional that is set.
func Some[T any](v T) Optional[T] { return Optional[T]{v, true} }

// optional makes an Optional of what a reader returns.
func optional[T any](v T, ok bool) Optional[T] { return Optional[T]{v, ok} }

// or is the Optional with the field's default for a Value, if it is not set.
func (o Optional[T]) or(def T) Optional[T] {
	if !o.Set {
		o.Value = def
	}
	return o
}

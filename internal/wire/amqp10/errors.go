package amqp10

import (
	"errors"
	"fmt"
)

// What can be wrong with encoded values. DecodeError wraps them.
var (
	// ErrTruncated is a value that goes on past the end of what holds it.
	ErrTruncated = errors.New("value exceeds the data")
	// ErrTrailing is data after the last value.
	ErrTrailing = errors.New("data after the last value")
	// ErrFormatCode is an octet that no encoding has for its code (1.6).
	ErrFormatCode = errors.New("unknown format code")
	// ErrDescriptor is a descriptor that is a list, a map, an array or described itself: all but ulong and
	// symbol are reserved (1.5), and these would be without end.
	ErrDescriptor = errors.New("descriptor is a compound value")
	// ErrTooDeep is a value with more lists, maps, arrays and descriptors around it than 100.
	ErrTooDeep = errors.New("values nested too deep")
	// ErrCount is a count that does not fit the data, a map with an odd one, or an array of more than
	// 255 elements that have no octets.
	ErrCount = errors.New("count does not fit the data")
	// ErrUTF8 is a string that is not UTF-8 (1.6.20).
	ErrUTF8 = errors.New("string is not UTF-8")
	// ErrASCII is a symbol that is not ASCII (1.6.21).
	ErrASCII = errors.New("symbol is not ASCII")
	// ErrValue is a number that the type does not have: a boolean other than 0 and 1, a char that is no
	// character of Unicode, a choice of a restricted type that does not exist.
	ErrValue = errors.New("no value of the type")
	// ErrType is a value of another type than its place has.
	ErrType = errors.New("value of another type")
	// ErrMandatory is a mandatory field that is null or left out.
	ErrMandatory = errors.New("mandatory field is missing")
	// ErrTooManyFields is a list with more fields than its type.
	ErrTooManyFields = errors.New("more fields than the type has")
	// ErrSection is a section of a message where it cannot be (3.2).
	ErrSection = errors.New("section out of place")
)

// A DecodeError is a composite value, or a section of a message, that cannot be decoded.
type DecodeError struct {
	Type    string // the name in the standard, as "transfer"
	Field   string // "" if it is about the whole
	Section string // of the standard, as "2.7.5"
	Err     error  // one of this package's
}

// Error names type, field and section of the standard: "transfer: handle: mandatory field is missing (2.7.5)".
func (e *DecodeError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%s: %v (%s)", e.Type, e.Err, e.Section)
	}
	return fmt.Sprintf("%s: %s: %v (%s)", e.Type, e.Field, e.Err, e.Section)
}

// Unwrap returns Err.
func (e *DecodeError) Unwrap() error { return e.Err }

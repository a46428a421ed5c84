package amqp091

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// A Method is one method of the protocol with its arguments: a struct for each, as
// QueueDeclare, generated from spec/amqp091.txt.
type Method interface {
	// ID returns the class and method id.
	ID() MethodID
	// Name returns the name in the protocol, as "queue.declare".
	Name() string
	// Append appends the arguments, without the ids, to dst. Short strings longer than
	// 255 bytes are cut: callers have checked the names they send.
	Append(dst []byte) []byte
}

// decodable is a Method as DecodeMethod makes it.
type decodable interface {
	Method
	Decode(args []byte) error
	describe(*lineWriter)
}

// methodEntry is a method in the dispatch table.
type methodEntry struct {
	name    string
	make    func() decodable
	content bool
}

// methodIDSize is how many bytes a MethodID takes up on the wire.
const methodIDSize = 4

// A MethodID is a class id and a method id: class<<16 | method. Each method has a
// constant, as BasicPublishID.
type MethodID uint32

// Class returns the class id.
func (id MethodID) Class() uint16 { return uint16(id >> 16) }

// Method returns the method id inside its class.
func (id MethodID) Method() uint16 { return uint16(id) }

// String returns the method's name, as "basic.publish", or its numbers, as "60.41",
// if there is no such method.
func (id MethodID) String() string {
	if e := id.entry(); e != nil {
		return e.name
	}
	return strconv.Itoa(int(id.Class())) + "." + strconv.Itoa(int(id.Method()))
}

// HasContent reports whether a content header and body follow the method.
func (id MethodID) HasContent() bool {
	e := id.entry()
	return e != nil && e.content
}

// entry looks the id up in the dispatch table; nil if there is no such method.
func (id MethodID) entry() *methodEntry {
	class, method := int(id.Class()), int(id.Method())
	if class >= len(methodsByClass) || method >= len(methodsByClass[class]) {
		return nil
	}
	if e := &methodsByClass[class][method]; e.make != nil {
		return e
	}
	return nil
}

// SplitMethod splits the payload of a method frame into the id and the arguments,
// which alias it. It reports false if the payload is too short to have an id.
func SplitMethod(payload []byte) (id MethodID, args []byte, ok bool) {
	if len(payload) < methodIDSize {
		return 0, nil, false
	}
	return MethodID(binary.BigEndian.Uint32(payload)), payload[methodIDSize:], true
}

// DecodeMethod decodes the payload of a method frame into a pointer to the method's
// struct, as *QueueDeclare. Nothing in it aliases payload. Errors are
// *UnknownMethodError and *ArgumentError.
func DecodeMethod(payload []byte) (Method, error) {
	m, err := decodeMethod(payload)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func decodeMethod(payload []byte) (decodable, error) {
	id, args, ok := SplitMethod(payload)
	if !ok {
		return nil, &ArgumentError{Field: "method-id", Err: ErrTruncated}
	}
	e := id.entry()
	if e == nil {
		return nil, &UnknownMethodError{id}
	}
	m := e.make()
	if err := m.Decode(args); err != nil {
		return nil, err
	}
	return m, nil
}

// AppendMethod appends a whole method frame.
func AppendMethod(dst []byte, channel uint16, m Method) []byte {
	start := len(dst)
	dst = beginMethod(dst, channel, m.ID())
	return endFrame(m.Append(dst), start)
}

// beginMethod appends a method frame's header and the method's id.
func beginMethod(dst []byte, channel uint16, id MethodID) []byte {
	return binary.BigEndian.AppendUint32(beginFrame(dst, FrameMethod, channel), uint32(id))
}

// An UnknownMethodError is a class or method id the protocol does not have.
type UnknownMethodError struct {
	ID MethodID
}

// Error names the numbers.
func (e *UnknownMethodError) Error() string {
	return fmt.Sprintf("unknown method %v", e.ID)
}

package amqp10

// Protocol headers (2.2): what each peer sends first, and again after the SASL dialog.
const (
	ProtocolHeader     = "AMQP\x00\x01\x00\x00"
	ProtocolHeaderTLS  = "AMQP\x02\x01\x00\x00" // 5.2.1
	ProtocolHeaderSASL = "AMQP\x03\x01\x00\x00" // 5.3.1
)

// ProtocolHeaderSize is how many octets a protocol header has.
const ProtocolHeaderSize = 8

// A ProtocolID says what a protocol header opens.
type ProtocolID uint8

// Protocol ids.
const (
	ProtocolAMQP ProtocolID = 0
	ProtocolTLS  ProtocolID = 2
	ProtocolSASL ProtocolID = 3
)

// ParseProtocolHeader reads a protocol header, of any version. It reports false if b does not begin with
// "AMQP" and four octets more.
func ParseProtocolHeader(b []byte) (id ProtocolID, version [3]byte, ok bool) {
	if len(b) < ProtocolHeaderSize || string(b[:4]) != "AMQP" {
		return 0, version, false
	}
	return ProtocolID(b[4]), [3]byte(b[5:8]), true
}

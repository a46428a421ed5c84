package amqp091

import "encoding/binary"

// settleSize is the size of the arguments of ack, nack and reject: a delivery tag and
// an octet of bits.
const settleSize = 9

// ParseAck reads the arguments of basic.ack and allocates nothing. An error is an
// *ArgumentError.
func ParseAck(args []byte) (BasicAck, error) {
	if len(args) != settleSize {
		return BasicAck{}, new(BasicAck).Decode(args)
	}
	return BasicAck{DeliveryTag: binary.BigEndian.Uint64(args), Multiple: args[8]&1 != 0}, nil
}

// ParseNack reads the arguments of basic.nack and allocates nothing. An error is an
// *ArgumentError.
func ParseNack(args []byte) (BasicNack, error) {
	if len(args) != settleSize {
		return BasicNack{}, new(BasicNack).Decode(args)
	}
	return BasicNack{DeliveryTag: binary.BigEndian.Uint64(args), Multiple: args[8]&1 != 0, Requeue: args[8]&2 != 0}, nil
}

// ParseReject reads the arguments of basic.reject and allocates nothing. An error is an
// *ArgumentError.
func ParseReject(args []byte) (BasicReject, error) {
	if len(args) != settleSize {
		return BasicReject{}, new(BasicReject).Decode(args)
	}
	return BasicReject{DeliveryTag: binary.BigEndian.Uint64(args), Requeue: args[8]&1 != 0}, nil
}

// AppendAck appends a whole basic.ack frame: as the server sends it, the confirm of a publish.
func AppendAck(dst []byte, channel uint16, tag uint64, multiple bool) []byte {
	return appendSettle(dst, channel, BasicAckID, tag, bit(multiple, 0))
}

// AppendNack appends a whole basic.nack frame with requeue false: as the server sends
// it, the refusal of a publish.
func AppendNack(dst []byte, channel uint16, tag uint64, multiple bool) []byte {
	return appendSettle(dst, channel, BasicNackID, tag, bit(multiple, 0))
}

func appendSettle(dst []byte, channel uint16, id MethodID, tag uint64, bits byte) []byte {
	dst = append(dst, FrameMethod, byte(channel>>8), byte(channel), 0, 0, 0, methodIDSize+settleSize)
	dst = binary.BigEndian.AppendUint32(dst, uint32(id))
	dst = binary.BigEndian.AppendUint64(dst, tag)
	return append(dst, bits, FrameEnd)
}

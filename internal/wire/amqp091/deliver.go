package amqp091

import "encoding/binary"

// AppendDeliver appends a whole basic.deliver frame and allocates nothing besides dst.
func AppendDeliver(dst []byte, channel uint16, consumerTag string, deliveryTag uint64, redelivered bool, exchange, routingKey []byte) []byte {
	start := len(dst)
	dst = beginMethod(dst, channel, BasicDeliverID)
	dst = appendShortstr(dst, consumerTag)
	dst = binary.BigEndian.AppendUint64(dst, deliveryTag)
	dst = append(dst, bit(redelivered, 0))
	dst = appendShortBytes(dst, exchange)
	dst = appendShortBytes(dst, routingKey)
	return endFrame(dst, start)
}

// AppendGetOk appends a whole basic.get-ok frame; messageCount is how many messages are
// left ready in the queue.
func AppendGetOk(dst []byte, channel uint16, deliveryTag uint64, redelivered bool, exchange, routingKey []byte, messageCount uint32) []byte {
	start := len(dst)
	dst = beginMethod(dst, channel, BasicGetOkID)
	dst = binary.BigEndian.AppendUint64(dst, deliveryTag)
	dst = append(dst, bit(redelivered, 0))
	dst = appendShortBytes(dst, exchange)
	dst = appendShortBytes(dst, routingKey)
	dst = binary.BigEndian.AppendUint32(dst, messageCount)
	return endFrame(dst, start)
}

// AppendReturn appends a whole basic.return frame. text is the whole reply-text, as
// "NO_ROUTE": returns carry the bare name.
func AppendReturn(dst []byte, channel, code uint16, text string, exchange, routingKey []byte) []byte {
	start := len(dst)
	dst = beginMethod(dst, channel, BasicReturnID)
	dst = binary.BigEndian.AppendUint16(dst, code)
	dst = appendShortstr(dst, text)
	dst = appendShortBytes(dst, exchange)
	dst = appendShortBytes(dst, routingKey)
	return endFrame(dst, start)
}

package amqp091

import "encoding/binary"

// AppendPropsTable appends the properties as the field value of a table: that of the header properties of RabbitMQ's traced
// messages. The keys are RabbitMQ's names of the properties, the last property first. Numbers are of type I, so that of a
// timestamp only the lower 32 bits are there. Headers that are nested too deep to be in a table of headers are left out.
func AppendPropsTable(dst []byte, p *Props) []byte {
	dst = append(dst, 'F')
	start := len(dst)
	w := tableWriter{dst: append(dst, 0, 0, 0, 0), flags: p.Flags}
	w.text(FlagClusterID, "cluster_id", p.ClusterID)
	w.text(FlagAppID, "app_id", p.AppID)
	w.text(FlagUserID, "user_id", p.UserID)
	w.text(FlagType, "type", p.Type)
	w.number(FlagTimestamp, "timestamp", uint32(p.Timestamp))
	w.text(FlagMessageID, "message_id", p.MessageID)
	w.text(FlagExpiration, "expiration", p.Expiration)
	w.text(FlagReplyTo, "reply_to", p.ReplyTo)
	w.text(FlagCorrelationID, "correlation_id", p.CorrelationID)
	w.number(FlagPriority, "priority", uint32(p.Priority))
	w.number(FlagDeliveryMode, "delivery_mode", uint32(p.DeliveryMode))
	if _, err := checkTable(p.Headers, 2); err == nil {
		w.value(FlagHeaders, "headers", 'F', p.Headers)
	}
	w.text(FlagContentEncoding, "content_encoding", p.ContentEncoding)
	w.text(FlagContentType, "content_type", p.ContentType)
	return endCounted(w.dst, start)
}

// tableWriter appends the properties that flags have, as fields.
type tableWriter struct {
	dst   []byte
	flags uint16
}

// value appends a field whose content has its length before it.
func (w *tableWriter) value(flag uint16, key string, kind byte, content []byte) {
	if w.flags&flag == 0 {
		return
	}
	w.dst = append(appendShortstr(w.dst, key), kind)
	w.dst = append(binary.BigEndian.AppendUint32(w.dst, uint32(len(content))), content...)
}

func (w *tableWriter) text(flag uint16, key string, text []byte) { w.value(flag, key, 'S', text) }

func (w *tableWriter) number(flag uint16, key string, n uint32) {
	if w.flags&flag != 0 {
		w.dst = binary.BigEndian.AppendUint32(append(appendShortstr(w.dst, key), 'I'), n)
	}
}

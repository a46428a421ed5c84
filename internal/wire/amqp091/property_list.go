package amqp091

import "encoding/binary"

// A PropertyList is the properties of a message as Go values, for those who make or show
// messages; what only passes them on uses Props. nil is a property that is not there; an
// empty Headers that is not nil is an empty table.
type PropertyList struct {
	ContentType     *string
	ContentEncoding *string
	Headers         Table
	DeliveryMode    *uint8
	Priority        *uint8
	CorrelationID   *string
	ReplyTo         *string
	Expiration      *string
	MessageID       *string
	Timestamp       *uint64 // seconds since 1970
	Type            *string
	UserID          *string
	AppID           *string
	ClusterID       *string
}

// DecodeProps decodes raw properties. An error is a *PropertyError.
func DecodeProps(raw []byte) (PropertyList, error) {
	p, err := ParseProps(raw)
	if err != nil {
		return PropertyList{}, err
	}
	l := PropertyList{
		ContentType:     p.text(FlagContentType, p.ContentType),
		ContentEncoding: p.text(FlagContentEncoding, p.ContentEncoding),
		DeliveryMode:    optional(&p, FlagDeliveryMode, p.DeliveryMode),
		Priority:        optional(&p, FlagPriority, p.Priority),
		CorrelationID:   p.text(FlagCorrelationID, p.CorrelationID),
		ReplyTo:         p.text(FlagReplyTo, p.ReplyTo),
		Expiration:      p.text(FlagExpiration, p.Expiration),
		MessageID:       p.text(FlagMessageID, p.MessageID),
		Timestamp:       optional(&p, FlagTimestamp, p.Timestamp),
		Type:            p.text(FlagType, p.Type),
		UserID:          p.text(FlagUserID, p.UserID),
		AppID:           p.text(FlagAppID, p.AppID),
		ClusterID:       p.text(FlagClusterID, p.ClusterID),
	}
	if p.Has(FlagHeaders) {
		if l.Headers, err = DecodeTable(p.Headers); err != nil {
			return PropertyList{}, &PropertyError{propertyName(FlagHeaders), err}
		}
	}
	return l, nil
}

func (p *Props) text(flag uint16, s []byte) *string {
	return optional(p, flag, string(s))
}

func optional[T any](p *Props, flag uint16, v T) *T {
	if !p.Has(flag) {
		return nil
	}
	return &v
}

// AppendPropsFrom appends raw properties made of Go values: headers in the order they
// have. Short strings longer than 255 bytes are cut; see AppendTable for the headers.
func AppendPropsFrom(dst []byte, l PropertyList) []byte {
	start := len(dst)
	w := listWriter{dst: append(dst, 0, 0)}
	w.shortstr(FlagContentType, l.ContentType)
	w.shortstr(FlagContentEncoding, l.ContentEncoding)
	if l.Headers != nil {
		w.flags |= FlagHeaders
		w.dst = AppendTable(w.dst, l.Headers)
	}
	w.octet(FlagDeliveryMode, l.DeliveryMode)
	w.octet(FlagPriority, l.Priority)
	w.shortstr(FlagCorrelationID, l.CorrelationID)
	w.shortstr(FlagReplyTo, l.ReplyTo)
	w.shortstr(FlagExpiration, l.Expiration)
	w.shortstr(FlagMessageID, l.MessageID)
	if l.Timestamp != nil {
		w.flags |= FlagTimestamp
		w.dst = binary.BigEndian.AppendUint64(w.dst, *l.Timestamp)
	}
	w.shortstr(FlagType, l.Type)
	w.shortstr(FlagUserID, l.UserID)
	w.shortstr(FlagAppID, l.AppID)
	w.shortstr(FlagClusterID, l.ClusterID)
	binary.BigEndian.PutUint16(w.dst[start:], w.flags)
	return w.dst
}

// listWriter appends the properties that are there and collects their flags.
type listWriter struct {
	dst   []byte
	flags uint16
}

func (w *listWriter) shortstr(flag uint16, s *string) {
	if s != nil {
		w.flags |= flag
		mustFit(len(*s))
		w.dst = appendShortstr(w.dst, *s)
	}
}

func (w *listWriter) octet(flag uint16, v *uint8) {
	if v != nil {
		w.flags |= flag
		w.dst = append(w.dst, *v)
	}
}

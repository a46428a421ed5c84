package convert

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// Delivery is what is known of a message on its way to a client besides its record.
type Delivery struct {
	History     *deadletter.History // nil if nothing has happened to the message
	Counts      queue.Counts
	Redelivered bool
	Quorum      bool // the queue is a quorum queue
	// Strict converts exactly as RabbitMQ: a message of AMQP 0-9-1 shows its ttl after a death (DL-14.4), and loses headers that
	// are tables or arrays (DL-15.2).
	Strict bool
}

// AppendAMQP10 appends to dst what a client of AMQP 1.0 gets of a message before its body: a header and annotations made for the
// delivery, and then what the message has of its own, as it came or converted (DL-14). head, body and tail one after another
// are the message. head is dst with what it has got; body and tail are views of the record, tail is often nil. So a session
// hands all three to amqp10.AppendTransfer, and begins head anew with the memory of the last one:
//
//	head, body, tail := convert.AppendAMQP10(s.head[:0], rec, &delivery)
//	s.head = head
//	out, sent := amqp10.AppendTransfer(out, channel, &transfer, maxFrameSize, 0, head, body, tail)
func AppendAMQP10(dst []byte, rec message.Record, d *Delivery) (head, body, tail []byte) {
	o := outgoing{rec: rec, d: d}
	if rec.HasSections() {
		return o.sections(dst)
	}
	return o.converted(dst)
}

// outgoing makes one message.
type outgoing struct {
	rec   message.Record
	d     *Delivery
	props amqp091.Props // of a message without sections
	w     annotationWriter

	delay  int64           // that the message has waited, in milliseconds
	merged map[string]bool // keys of History.Annotations
}

// sections is AppendAMQP10 for a message that came by AMQP 1.0.
func (o *outgoing) sections(dst []byte) (head, body, tail []byte) {
	if o.rec.HasExpiration() || o.d.History != nil && o.d.History.Delayed {
		o.parse()
	}
	dst = o.header(dst)
	stored := o.rec.Sections()
	bare := stored.Head
	v, rest, err := amqp10.ReadValue(bare) // an error: it is the beginning of the body
	annotated := err == nil && v.Descriptor() == amqp10.DescriptorMessageAnnotations
	o.begin(dst)
	if annotated {
		bare = rest
		items := v.Underlying().Items()
		var key, value amqp10.Value
		for items.Read(&key) && items.Read(&value) {
			if name, ok := key.Symbol(); !ok || !o.replaces(name) {
				o.w.b, o.w.n = value.Append(key.Append(o.w.b)), o.w.n+2
			}
		}
	}
	return append(o.w.end(), bare...), o.rec.Body(), stored.Tail
}

// parse reads the properties.
func (o *outgoing) parse() {
	if p, err := amqp091.ParseProps(o.rec.Properties()); err == nil { // always: they were checked when it was published
		o.props = p
	}
}

// header appends the section header (DL-14.3, DL-14.4).
func (o *outgoing) header(dst []byte) []byte {
	h := amqp10.Header{Durable: o.rec.Persistent(), DeliveryCount: o.d.Counts.Deliveries}
	h.FirstAcquirer = !o.d.Redelivered && h.DeliveryCount == 0 && !o.died()
	if p, ok := o.rec.Priority(); ok {
		h.Priority = amqp10.Some(p)
	}
	if o.rec.HasExpiration() && (o.d.History == nil || o.d.History.KeepsTTL() || o.d.Strict && !o.rec.HasSections()) {
		if ttl, err := strconv.ParseUint(string(o.props.Expiration), 10, 64); err == nil {
			h.TTL = amqp10.Some(uint32(min(ttl, math.MaxUint32)))
		}
	}
	return h.Append(dst)
}

func (o *outgoing) died() bool { return o.d.History != nil && len(o.d.History.Deaths) > 0 }

// counted says whether the counters of the queue are shown, as RenderProps does for AMQP 0-9-1.
func (o *outgoing) counted() bool { return o.d.Quorum || o.d.Counts.Acquired > 0 }

// acquired is how often the message came back, as x-acquired-count has it: failed deliveries in an earlier queue count until it
// is acquired in this one.
func (o *outgoing) acquired() uint32 {
	if o.d.Counts.Acquired > 0 {
		return o.d.Counts.Acquired
	}
	return o.d.Counts.Deliveries
}

// Annotations of deaths and counters.
const (
	annotationFirstExchange = "x-first-death-exchange"
	annotationFirstQueue    = "x-first-death-queue"
	annotationFirstReason   = "x-first-death-reason"
	annotationLastExchange  = "x-last-death-exchange"
	annotationLastQueue     = "x-last-death-queue"
	annotationLastReason    = "x-last-death-reason"
	annotationTotal         = "x-death-total" // ApsaraMQ's (DL-22.6)
	annotationAcquired      = "x-acquired-count"
	annotationDeliveries    = "x-delivery-count"
)

// begin begins the message-annotations, with those that are made for the delivery (DL-14.1, DL-14.2). replaces knows them all.
func (o *outgoing) begin(dst []byte) {
	w := &o.w
	w.b, w.start = amqp10.BeginMap(amqp10.AppendDescriptor(dst, amqp10.DescriptorMessageAnnotations))
	h := o.d.History
	if h == nil || !h.Placed() {
		addText(w, annotationExchange, o.rec.Exchange())
		addText(w, annotationKey, o.rec.Key())
	} else {
		addText(w, annotationExchange, h.Exchange)
		addText(w, annotationKey, h.Keys[0])
	}
	if h != nil {
		o.history(h)
	}
	if o.counted() {
		if n := o.acquired(); n > 0 {
			w.long(annotationAcquired, int64(n))
		}
		if n := o.d.Counts.Deliveries; n > 0 {
			w.long(annotationDeliveries, int64(n))
		}
	}
	if h != nil && h.Annotations != "" {
		o.merge(h.Annotations)
	}
}

// history adds what the history says.
func (o *outgoing) history(h *deadletter.History) {
	w := &o.w
	if len(h.Deaths) > 0 {
		w.deaths(h)
		first, last := &h.Deaths[h.First], &h.Deaths[0]
		addText(w, annotationFirstExchange, first.Exchange)
		addText(w, annotationFirstQueue, first.Queue)
		addText(w, annotationFirstReason, h.ReasonName(first.Reason))
		if h.Profile == deadletter.ApsaraMQ {
			w.long(annotationTotal, int64(min(h.Total(), math.MaxInt64)))
		} else {
			addText(w, annotationLastExchange, h.LastExchange)
			addText(w, annotationLastQueue, last.Queue)
			addText(w, annotationLastReason, h.ReasonName(last.Reason))
		}
	}
	if h.ReplayedFrom != "" {
		addText(w, deadletter.HeaderReplayedFrom, h.ReplayedFrom)
	}
	if h.Delayed {
		if ms, _ := message.Delay(o.props.Headers); ms > 0 {
			o.delay = ms
			w.long(message.DelayHeader, -ms)
		}
	}
}

// merge adds the annotations that outcomes have merged into the message.
func (o *outgoing) merge(annotations string) {
	o.merged = map[string]bool{}
	rangeAnnotations(annotations, func(key []byte, v *amqp10.Value) {
		if o.replaces(key) {
			return
		}
		o.merged[string(key)] = true
		o.w.b = v.Append(amqp10.AppendSymbol(o.w.b, key))
		o.w.n += 2
	})
}

// replaces says whether the message's own annotation is not shown: there is another one for it, or the history has removed it.
func (o *outgoing) replaces(key []byte) bool {
	h := o.d.History
	switch string(key) {
	case annotationExchange, annotationKey:
		return true
	case annotationAcquired:
		return o.counted() && o.acquired() > 0
	case annotationDeliveries:
		return o.counted() && o.d.Counts.Deliveries > 0
	case message.DelayHeader:
		return o.delay > 0
	case annotationType:
		return o.props.Has(amqp091.FlagType) && !o.rec.HasSections()
	}
	if h != nil {
		replayed := h.ReplayedFrom != ""
		switch string(key) {
		case annotationDeaths, annotationFirstExchange, annotationFirstQueue, annotationFirstReason:
			return len(h.Deaths) > 0 || replayed
		case annotationLastExchange, annotationLastQueue, annotationLastReason:
			return len(h.Deaths) > 0 && h.Profile != deadletter.ApsaraMQ || replayed
		case annotationTotal:
			return h.Profile == deadletter.ApsaraMQ && (len(h.Deaths) > 0 || replayed)
		case headerDeath, deadletter.HeaderReplayedFrom:
			return replayed
		case annotationCC:
			return h.StripCC
		}
	}
	return o.merged[string(key)]
}

// annotationWriter writes a section of annotations.
type annotationWriter struct {
	b        []byte
	start, n int
}

// addText adds an annotation with a string.
func addText[S ~string | ~[]byte](w *annotationWriter, key string, s S) {
	w.b, w.n = appendText(amqp10.AppendSymbol(w.b, key), s), w.n+2
}

// appendText appends a name or a routing key. One that is no UTF-8, which an earlier version may have stored, is mended.
func appendText[S ~string | ~[]byte](dst []byte, s S) []byte {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return amqp10.AppendString(dst, strings.ToValidUTF8(string(s), "\uFFFD"))
		}
	}
	return amqp10.AppendString(dst, s)
}

func (w *annotationWriter) long(key string, n int64) {
	w.b, w.n = amqp10.AppendLong(amqp10.AppendSymbol(w.b, key), n), w.n+2
}

func (w *annotationWriter) end() []byte { return amqp10.EndCompound(w.b, w.start, w.n) }

// Format codes of arrays and of their elements, which have the widest encoding of their type (1.6).
const (
	codeArray32  = 0xf0
	codeMap32    = 0xd1
	codeString32 = 0xb1
)

// deaths adds x-opt-deaths (DL-14.1).
func (w *annotationWriter) deaths(h *deadletter.History) {
	be := binary.BigEndian
	b := amqp10.AppendSymbol(w.b, annotationDeaths)
	array := len(b) + 1
	b = append(be.AppendUint32(append(b, codeArray32, 0, 0, 0, 0), uint32(len(h.Deaths))), codeMap32)
	for i := range h.Deaths {
		death := &h.Deaths[i]
		at, n := len(b), uint32(2*len(deathKeys))
		b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
		if death.Expiration >= 0 {
			b = amqp10.AppendUint(amqp10.AppendSymbol(b, "ttl"), uint32(min(death.Expiration, math.MaxUint32)))
		} else {
			n -= 2
		}
		b = appendText(amqp10.AppendSymbol(b, "queue"), death.Queue)
		b = amqp10.AppendSymbol(amqp10.AppendSymbol(b, "reason"), asciiReason(h, death.Reason))
		b = amqp10.AppendUlong(amqp10.AppendSymbol(b, "count"), death.Count)
		b = amqp10.AppendTimestamp(amqp10.AppendSymbol(b, "first-time"), death.First)
		b = amqp10.AppendTimestamp(amqp10.AppendSymbol(b, "last-time"), death.Last)
		b = appendText(amqp10.AppendSymbol(b, "exchange"), death.Exchange)
		b = appendTexts(amqp10.AppendSymbol(b, "routing-keys"), death.Keys)
		be.PutUint32(b[at+4:], n)
		putSize(b, at)
	}
	putSize(b, array)
	w.b, w.n = b, w.n+2
}

// asciiReason is the reason's name, which is a symbol here: a name from the configuration that cannot be one is left aside.
func asciiReason(h *deadletter.History, r deadletter.Reason) string {
	if name := h.ReasonName(r); isASCII(name) {
		return name
	}
	return r.String()
}

// appendTexts appends an array of strings.
func appendTexts(dst []byte, list []string) []byte {
	be := binary.BigEndian
	at := len(dst) + 1
	dst = append(be.AppendUint32(append(dst, codeArray32, 0, 0, 0, 0), uint32(len(list))), codeString32)
	for _, s := range list {
		if !utf8.ValidString(s) {
			s = strings.ToValidUTF8(s, "\uFFFD")
		}
		dst = appendLong(dst, s)
	}
	putSize(dst, at)
	return dst
}

package amqp091

import "testing"

// hotProps are the properties of a typical message.
func hotProps() []byte {
	contentType, id, two := "application/json", "0123456789abcdef", uint8(2)
	return AppendPropsFrom(nil, PropertyList{ContentType: &contentType, DeliveryMode: &two, MessageID: &id,
		Headers: Table{{"attempt", int32(1)}, {"tenant", "acme"}}})
}

// publishFrames is a message as a client sends it.
func publishFrames() []byte {
	b := AppendPublish(nil, 1, Publish{Exchange: []byte("events"), RoutingKey: []byte("order.created")})
	b = AppendContentHeader(b, 1, ClassBasic, 100, hotProps())
	return AppendBody(b, 1, make([]byte, 100), 131072)
}

func readPublish(buf []byte) error {
	for len(buf) > 0 {
		f, n, err := NextFrame(buf, testMax)
		if err != nil {
			return err
		}
		switch f.Type {
		case FrameMethod:
			_, args, _ := SplitMethod(f.Payload)
			if _, err := ParsePublish(args); err != nil {
				return err
			}
		case FrameHeader:
			_, _, props, err := ParseContentHeader(f.Payload)
			if err != nil {
				return err
			}
			if _, err := ParseProps(props); err != nil {
				return err
			}
		}
		buf = buf[n:]
	}
	return nil
}

func writeDelivery(dst []byte, exchange, key, props, body []byte) []byte {
	dst = AppendDeliver(dst, 1, "ctag-1", 42, false, exchange, key)
	dst = AppendContentHeader(dst, 1, ClassBasic, uint64(len(body)), props)
	return AppendBody(dst, 1, body, 131072)
}

// deathEdit is what a dead letter gets on its way.
func deathEdit() *PropsEdit {
	removed := ""
	return &PropsEdit{Expiration: &removed, Set: []RawField{
		raw("x-death", Array{Table{{"count", int64(1)}, {"reason", "rejected"}, {"queue", "q"}}}),
		raw("x-first-death-queue", "q"), raw("x-first-death-reason", "rejected"),
	}}
}

func TestTheHotPathAllocatesNothing(t *testing.T) {
	in, out := publishFrames(), make([]byte, 0, 4096)
	exchange, key, props, body := []byte("events"), []byte("order.created"), hotProps(), make([]byte, 100)
	p, err := ParseProps(props)
	if err != nil {
		t.Fatal(err)
	}
	unsortedRaw := AppendPropsFrom(nil, PropertyList{Headers: Table{{"b", "1"}, {"a", "2"}, {"b", "3"}}})
	unsorted, err := ParseProps(unsortedRaw)
	if err != nil {
		t.Fatal(err)
	}
	edit := deathEdit()
	replyTo := "amq.rabbitmq.reply-to.g1h2AA5yZXBseUA1MjE4NzA2NQAAAAAAAAAA.abc=="
	edit.ReplyTo = &replyTo
	ack := AppendAck(nil, 1, 7, true)
	ack = ack[frameHeaderSize+methodIDSize : len(ack)-1]
	for name, f := range map[string]func(){
		"read a publish":    func() { _ = readPublish(in) },
		"write a delivery":  func() { out = writeDelivery(out[:0], exchange, key, props, body) },
		"write get-ok":      func() { out = AppendGetOk(out[:0], 1, 2, false, exchange, key, 3) },
		"write a return":    func() { out = AppendReturn(out[:0], 1, CodeNoRoute, "NO_ROUTE", exchange, key) },
		"read an ack":       func() { _, _ = ParseAck(ack) },
		"write a confirm":   func() { out = AppendAck(out[:0], 1, 7, true) },
		"look up a header":  func() { _, _, _ = HeaderField(p.Headers, "tenant") },
		"sort headers":      func() { out = AppendProps(out[:0], unsortedRaw, &unsorted, nil) },
		"write death rows":  func() { out = AppendProps(out[:0], props, &p, edit) },
		"sort with an edit": func() { out = AppendProps(out[:0], unsortedRaw, &unsorted, edit) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkReadPublish(b *testing.B) {
	buf := publishFrames()
	b.ReportAllocs()
	for b.Loop() {
		if err := readPublish(buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWriteDelivery(b *testing.B) {
	exchange, key, props, body := []byte("events"), []byte("order.created"), hotProps(), make([]byte, 100)
	out := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		out = writeDelivery(out[:0], exchange, key, props, body)
	}
}

func BenchmarkAppendPropsOfADeadLetter(b *testing.B) {
	props := hotProps()
	p, err := ParseProps(props)
	if err != nil {
		b.Fatal(err)
	}
	edit, out := deathEdit(), make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		out = AppendProps(out[:0], props, &p, edit)
	}
}

package session10_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/edge/session10"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp10"
)

// one is a whole transfer with a delivery-id.
func one(id uint32) amqp10.Transfer {
	return amqp10.Transfer{DeliveryID: amqp10.Some(id), DeliveryTag: []byte{byte(id)}}
}

// Messages go where the address says, or each its own property to.
func TestAddresses(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	ch := n.channel(t)
	n.declare(t, "a/b c", nil)
	if err := ch.ExchangeDeclare("x y", "direct", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"", "k/1"} {
		if err := ch.QueueBind("a/b c", key, "x y", false, nil); err != nil {
			t.Fatal(err)
		}
	}
	c := n.session(t)
	id := uint32(0)
	for handle, address := range []string{"/queues/a%2Fb%20c", "/queues/a%2fb%20c", "/exchanges/x%20y", "/exchanges/x%20y/k%2F1"} {
		c.publisher(0, uint32(handle), address)
		transfer := one(id)
		transfer.Handle = uint32(handle)
		c.transfer(0, transfer, text(address))
		if d := await[*amqp10.Disposition](c); d.First != id || d.State.Descriptor() != amqp10.DescriptorAccepted {
			t.Errorf("%s: %+v", address, d)
		}
		id++
		m, ok, err := ch.Get("a/b c", true)
		if err != nil || !ok || string(m.Body) != address {
			t.Errorf("%s: %q %v %v", address, m.Body, ok, err)
		}
	}
	c.publisher(0, 9, "")
	for _, s := range []struct {
		to, condition string // "" accepted
	}{
		{"/queues/a%2Fb%20c", ""},
		{"/exchanges/x%20y", ""},
		{"/exchanges/nowhere", amqp10.ConditionNotFound},
		{"/exchanges//k", amqp10.ConditionPreconditionFailed},
		{"/exchanges/a/b/c", amqp10.ConditionPreconditionFailed},
		{"/queues/", amqp10.ConditionPreconditionFailed},
		{"/queues/%2", amqp10.ConditionPreconditionFailed},
		{"/topics/a", amqp10.ConditionPreconditionFailed},
		{"", amqp10.ConditionPreconditionFailed},
	} {
		transfer := one(id)
		transfer.Handle = 9
		p := &amqp10.Properties{}
		if s.to != "" {
			p.To = []byte(s.to)
		}
		c.transfer(0, transfer, append(p.Append(nil), text("x")...))
		d := await[*amqp10.Disposition](c)
		if d.First != id || !d.Settled {
			t.Errorf("%s: %+v", s.to, d)
		}
		id++
		if s.condition == "" {
			if d.State.Descriptor() != amqp10.DescriptorAccepted {
				t.Errorf("%s: %v", s.to, d.State.Descriptor())
			}
			continue
		}
		var r amqp10.Rejected
		if err := r.Decode(d.State); err != nil {
			t.Fatal(err)
		}
		c.want(r.Error, s.condition, "")
	}
}

// A link to what does not exist, or in a form that is not known, is answered without our terminus and detached.
func TestRefusedLinks(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	if err := n.channel(t).ExchangeDeclare("internal", "direct", true, false, true, false, nil); err != nil {
		t.Fatal(err)
	}
	other := n.channel(t)
	if _, err := other.QueueDeclare("mine", false, false, true, false, nil); err != nil {
		t.Fatal(err)
	}
	c := n.session(t)
	source := func(address string) *amqp10.Attach {
		s := &amqp10.Source{}
		if address != "" {
			s.Address = []byte(address)
		}
		return &amqp10.Attach{Role: amqp10.RoleReceiver, Source: composite(s), Target: composite(&amqp10.Target{})}
	}
	target := func(address string) *amqp10.Attach {
		return &amqp10.Attach{Role: amqp10.RoleSender, Source: composite(&amqp10.Source{}), Target: composite(&amqp10.Target{Address: []byte(address)}), InitialDeliveryCount: amqp10.Some[uint32](0)}
	}
	with := func(a *amqp10.Attach, f func(*amqp10.Attach)) *amqp10.Attach {
		f(a)
		return a
	}
	unsettled, _, _ := amqp10.ReadValue([]byte{0xc1, 5, 2, 0xa0, 1, 'a', 0x40})
	for _, s := range []struct {
		attach          *amqp10.Attach
		condition, text string
	}{
		{source("/queues/none"), amqp10.ConditionNotFound, "no queue 'none' in vhost '/'"},
		{source("/queues/mine"), amqp10.ConditionResourceLocked, "cannot obtain exclusive access to locked queue 'mine' in vhost '/'"},
		{source("/queue/q"), amqp10.ConditionInvalidField, "Attach refused: {amqp_address_v1_not_permitted,"},
		{source("/exchanges/x"), amqp10.ConditionInvalidField, "amqp_address_v1_not_permitted"},
		{source(""), amqp10.ConditionInvalidField, "bad_address"},
		{source("/queues/%zz"), amqp10.ConditionInvalidField, "bad_address"},
		{with(source("/queues/q"), func(a *amqp10.Attach) { a.Source = amqp10.Value{} }), amqp10.ConditionInvalidField, "source_required"},
		{with(source(""), func(a *amqp10.Attach) { a.Source = composite(&amqp10.Source{Dynamic: true}) }), amqp10.ConditionNotImplemented, "Dynamic source"},
		{with(source("/queues/q"), func(a *amqp10.Attach) { a.Unsettled = unsettled }), amqp10.ConditionNotImplemented, "Link recovery not supported"},
		{with(source("/queues/q"), func(a *amqp10.Attach) { a.RcvSettleMode = amqp10.ReceiverSettleModeSecond }), amqp10.ConditionNotImplemented, "rcv-settle-mode second"},
		{with(source("/queues/q"), func(a *amqp10.Attach) {
			symbols, _, _ := amqp10.ReadValue(amqp10.AppendSymbols(nil, "amqp:accepted:list", "x:y:list"))
			a.Source = composite(&amqp10.Source{Address: []byte("/queues/q"), Outcomes: symbols})
		}), amqp10.ConditionNotImplemented, "Outcomes not supported"},
		{target("/queues/none"), amqp10.ConditionNotFound, "no queue 'none' in vhost '/'"},
		{target("/exchanges/none"), amqp10.ConditionNotFound, "no exchange 'none' in vhost '/'"},
		{target("/exchanges/internal"), amqp10.ConditionUnauthorizedAccess, "internal exchange 'internal'"},
		{target("/exchanges/"), amqp10.ConditionInvalidField, "Attach refused: {bad_address_string,<<\"/exchanges/\">>}"},
		{target("/exchanges/amq.default"), amqp10.ConditionInvalidField, "bad_address_string"},
		{target("/topic/a"), amqp10.ConditionInvalidField, "amqp_address_v1_not_permitted"},
		{with(target(""), func(a *amqp10.Attach) { a.Target = composite(&amqp10.Coordinator{}) }), amqp10.ConditionNotImplemented, "Transactions not supported"},
		{with(target(""), func(a *amqp10.Attach) { a.Target = amqp10.Value{} }), amqp10.ConditionInvalidField, "target_required"},
	} {
		s.attach.Name, s.attach.Handle = []byte("link"), 3
		c.send(0, s.attach)
		answer := await[*amqp10.Attach](c)
		if answer.Handle != 3 || answer.Role == s.attach.Role || answer.Role == amqp10.RoleReceiver && !answer.Target.IsNull() || answer.Role == amqp10.RoleSender && !answer.Source.IsNull() {
			t.Errorf("%s: the answer is %+v", s.text, answer)
		}
		f, err := c.read()
		if err != nil {
			t.Fatal(err)
		}
		d, ok := f.is.(*amqp10.Detach)
		if !ok || !d.Closed {
			t.Fatalf("%s: %+v", s.text, f.is)
		}
		c.want(d.Error, s.condition, s.text)
	}
	c.consumer(0, 3, "q", 0) // the session goes on
}

// A message may come in as many transfers as its publisher likes; those of several links may alternate.
func TestMessagesInPieces(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	c := n.session(t)
	c.publisher(0, 0, "/queues/q")
	c.publisher(0, 1, "/queues/q")
	a, b := text("first message"), text("another message")
	for i := range max(len(a), len(b)) {
		for handle, payload := range [][]byte{a, b} {
			if i >= len(payload) {
				continue
			}
			transfer := amqp10.Transfer{Handle: uint32(handle), More: i < len(payload)-1}
			if i == 0 {
				transfer.DeliveryID, transfer.DeliveryTag = amqp10.Some(uint32(handle)), []byte{byte(handle)}
			}
			c.transfer(0, transfer, payload[i:i+1])
		}
	}
	await[*amqp10.Disposition](c)
	await[*amqp10.Disposition](c)
	c.consumer(0, 2, "q", 2)
	for _, want := range []string{"first message", "another message"} {
		if got := c.bodyOf(awaitFrame[*amqp10.Transfer](c).payload); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A message that its publisher aborts is forgotten (2.7.5), and the link goes on.
func TestAnAbortedMessage(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	c := n.session(t)
	c.publisher(0, 0, "/queues/q")
	part := one(0)
	part.More = true
	c.transfer(0, part, text("x")[:2])
	c.transfer(0, amqp10.Transfer{Aborted: true}, nil)
	c.transfer(0, one(1), text("y"))
	if d := await[*amqp10.Disposition](c); d.First != 1 {
		t.Errorf("%+v", d)
	}
}

// RabbitMQ publishes what has come of a message that its publisher aborts, and so do we in strict mode.
func TestAnAbortedMessageInStrictMode(t *testing.T) {
	n := serve(t, broker.Options{}, func(o *session10.Options) { o.Strict = true })
	n.declare(t, "q", nil)
	c := n.session(t)
	c.publisher(0, 0, "/queues/q")
	part, rest := one(0), text("x")
	part.More = true
	c.transfer(0, part, rest[:2])
	c.transfer(0, amqp10.Transfer{Aborted: true}, rest[2:])
	if d := await[*amqp10.Disposition](c); d.First != 0 || d.State.Descriptor() != amqp10.DescriptorAccepted {
		t.Errorf("%+v", d)
	}
}

// The outcomes of a publish: no route is released, a full queue rejects, and messages that are settled get no answer.
func TestOutcomesOfPublishes(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "full", amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
	c := n.session(t)
	c.publisher(0, 0, "/exchanges/amq.direct/nowhere")
	settled := one(0)
	settled.Settled = amqp10.Some(true)
	c.transfer(0, settled, text("a"))
	c.transfer(0, one(1), text("b"))
	c.transfer(0, one(2), text("c"))
	if d := await[*amqp10.Disposition](c); d.First != 1 || d.State.Descriptor() != amqp10.DescriptorReleased {
		t.Errorf("%+v", d)
	}
	c.publisher(0, 1, "/queues/full")
	for id := range uint32(3) {
		transfer := one(10 + id)
		transfer.Handle = 1
		c.transfer(0, transfer, text("x"))
	}
	var rejected []uint32
	for answered := 0; answered < 3; {
		d := await[*amqp10.Disposition](c)
		last := max(d.First, d.Last.Value)
		if d.First < 10 {
			continue // the released ones may come in two
		}
		answered += int(last-d.First) + 1
		if d.State.Descriptor() != amqp10.DescriptorRejected {
			continue
		}
		var r amqp10.Rejected
		if err := r.Decode(d.State); err != nil {
			t.Fatal(err)
		}
		c.want(r.Error, amqp10.ConditionResourceLimitExceeded, "queue 'full' exceeded maximum length")
		if reason, _ := r.Error.Info.Lookup("reason"); reason.IsNull() {
			t.Error("no reason in the info")
		}
		for id := d.First; id <= last; id++ {
			rejected = append(rejected, id)
		}
	}
	if fmt.Sprint(rejected) != "[11 12]" {
		t.Errorf("rejected %v", rejected)
	}
}

// A publisher gets new credit when half of it is used, and more than it has ends its link.
func TestCreditOfPublishers(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	c := n.session(t)
	c.publisher(0, 0, "/queues/q")
	settled := amqp10.Transfer{Settled: amqp10.Some(true), DeliveryTag: []byte{}}
	for id := range uint32(85) {
		settled.DeliveryID = amqp10.Some(id)
		c.transfer(0, settled, text("x"))
	}
	f := await[*amqp10.Flow](c)
	if !f.Handle.Set || f.DeliveryCount.Value != 85 || f.LinkCredit.Value != 170 {
		t.Errorf("%+v", f)
	}
}

// A publisher hears of a larger window of its session, and may not exceed it.
func TestWindowOfPublishers(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	c := n.session(t)
	c.publisher(0, 0, "/queues/q")
	// Pieces of one message take no credit.
	for i := range 200 {
		transfer := amqp10.Transfer{More: true}
		if i == 0 {
			transfer = one(0)
			transfer.More = true
		}
		c.transfer(0, transfer, nil)
	}
	if f := await[*amqp10.Flow](c); f.Handle.Set || f.IncomingWindow != 400 || f.NextIncomingID.Value != 200 {
		t.Errorf("%+v", f)
	}
	n.b.SetAlarm(broker.Memory, true)
	if f := await[*amqp10.Flow](c); f.IncomingWindow != 0 {
		t.Errorf("%+v", f)
	}
	for range 401 {
		c.transfer(0, amqp10.Transfer{More: true}, nil)
	}
	f := awaitEnd(c)
	c.want(f.Error, amqp10.ConditionWindowViolation, "incoming window violation")
	n.b.SetAlarm(broker.Memory, false)
	c.begin(0, 10) // the connection goes on
}

func awaitEnd(c *client) *amqp10.End {
	c.t.Helper()
	for {
		f, err := c.read()
		if err != nil {
			c.t.Fatal(err)
		}
		if e, ok := f.is.(*amqp10.End); ok {
			return e
		}
	}
}

func awaitDetach(c *client) *amqp10.Detach {
	c.t.Helper()
	for {
		f, err := c.read()
		if err != nil {
			c.t.Fatal(err)
		}
		if d, ok := f.is.(*amqp10.Detach); ok {
			return d
		}
	}
}

func awaitClose(c *client) *amqp10.Close {
	c.t.Helper()
	for {
		f, err := c.read()
		if err != nil {
			c.t.Fatal(err)
		}
		if d, ok := f.is.(*amqp10.Close); ok {
			return d
		}
	}
}

// During an alarm messages that are on their way are taken, and the window opens again after it.
func TestAlarm(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	n.b.SetAlarm(broker.Disk, true)
	c := n.open(t)
	c.send(0, &amqp10.Begin{IncomingWindow: 10, OutgoingWindow: 10})
	if b := await[*amqp10.Begin](c); b.IncomingWindow != 0 {
		t.Errorf("window %d in an alarm", b.IncomingWindow)
	}
	n.b.SetAlarm(broker.Disk, false)
	if f := await[*amqp10.Flow](c); f.IncomingWindow != 400 || f.Handle.Set {
		t.Errorf("%+v", f)
	}
	c.publisher(0, 0, "/queues/q")
	c.transfer(0, one(0), text("x"))
	await[*amqp10.Disposition](c)
}

// What a publisher does wrong ends its link, its session or its connection, with RabbitMQ's condition.
func TestWrongPublishers(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	big := make([]byte, 17<<20)
	for name, s := range map[string]struct {
		do              func(c *client)
		link            bool
		condition, text string
	}{
		"no link": {func(c *client) {
			c.transfer(0, amqp10.Transfer{Handle: 7, DeliveryID: amqp10.Some[uint32](0)}, text("x"))
		}, false, amqp10.ConditionUnattachedHandle, ""},
		"no id": {func(c *client) { c.transfer(0, amqp10.Transfer{}, text("x")) }, false, amqp10.ConditionInvalidField, "delivery-id"},
		"other id": {func(c *client) {
			transfer := one(0)
			transfer.More = true
			c.transfer(0, transfer, nil)
			c.transfer(0, one(1), text("x"))
		}, true, amqp10.ConditionInvalidField, "delivery-id of continuation transfer ({uint,1}) differs"},
		"settled later": {func(c *client) {
			transfer := one(0)
			transfer.More = true
			c.transfer(0, transfer, nil)
			c.transfer(0, amqp10.Transfer{Settled: amqp10.Some(true)}, text("x"))
		}, true, amqp10.ConditionInvalidField, "field 'settled'"},
		"no body": {func(c *client) { c.transfer(0, one(0), (&amqp10.Header{}).Append(nil)) }, true, amqp10.ConditionDecodeError, "failed to parse message"},
		"garbage": {func(c *client) { c.transfer(0, one(0), []byte("garbage")) }, true, amqp10.ConditionDecodeError, "failed to parse message"},
		"half":    {func(c *client) { c.transfer(0, one(0), text("hello")[:6]) }, true, amqp10.ConditionDecodeError, "failed to parse message"},
		"nothing": {func(c *client) { c.transfer(0, one(0), nil) }, true, amqp10.ConditionDecodeError, "failed to parse message"},
		"another's user-id": {func(c *client) {
			c.transfer(0, one(0), append((&amqp10.Properties{UserID: []byte("root")}).Append(nil), text("x")...))
		}, true, amqp10.ConditionUnauthorizedAccess, "user_id property set to 'root' but authenticated user was 'guest'"},
		"second": {func(c *client) {
			transfer := one(0)
			transfer.RcvSettleMode = amqp10.Some(amqp10.ReceiverSettleModeSecond)
			c.transfer(0, transfer, text("x"))
		}, true, amqp10.ConditionNotImplemented, "rcv-settle-mode second not supported"},
		"too large": {func(c *client) {
			for at := 0; at < len(big); at += 100 << 10 {
				transfer := amqp10.Transfer{More: true}
				if at == 0 {
					transfer = one(0)
					transfer.More = true
				}
				c.transfer(0, transfer, big[at:min(len(big), at+100<<10)])
			}
		}, false, amqp10.ConditionMessageSizeExceeded, "maximum message size (16777216 bytes)"},
		"handle in use": {func(c *client) {
			c.send(0, &amqp10.Attach{Name: []byte("x"), Role: amqp10.RoleSender, Target: composite(&amqp10.Target{}), InitialDeliveryCount: amqp10.Some[uint32](0)})
		}, false, amqp10.ConditionHandleInUse, "handle 0 is already associated with a link"},
		"high handle":   {func(c *client) { c.send(0, &amqp10.Attach{Name: []byte("x"), Handle: 256}) }, false, amqp10.ConditionFramingError, "link handle value (256) exceeds maximum link handle value (255)"},
		"flow for none": {func(c *client) { c.send(0, &amqp10.Flow{Handle: amqp10.Some[uint32](4)}) }, false, amqp10.ConditionUnattachedHandle, "Unattached link handle: 4"},
		"flow ahead":    {func(c *client) { c.send(0, &amqp10.Flow{NextIncomingID: amqp10.Some[uint32](5)}) }, false, amqp10.ConditionWindowViolation, "next-incoming-id from FLOW (5) leads next-outgoing-id (0)"},
		"begin again":   {func(c *client) { c.send(0, &amqp10.Begin{}) }, false, amqp10.ConditionInternalError, "Unexpected frame"},
	} {
		t.Run(name, func(t *testing.T) {
			c := n.session(t)
			c.publisher(0, 0, "/queues/q")
			s.do(c)
			if s.link {
				d := awaitDetach(c)
				c.want(d.Error, s.condition, s.text)
				c.send(0, &amqp10.Detach{Handle: 0, Closed: true})
				c.publisher(0, 0, "/queues/q") // there is no second detach, and the session goes on
				return
			}
			c.want(awaitEnd(c).Error, s.condition, s.text)
			c.send(0, &amqp10.End{})
			c.begin(0, 10)
		})
	}
}

// Delivery-ids are serial numbers: they wrap.
func TestDeliveryIDsWrap(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	c := n.open(t)
	c.send(0, &amqp10.Begin{NextOutgoingID: math.MaxUint32 - 1, IncomingWindow: 100, OutgoingWindow: 100})
	await[*amqp10.Begin](c)
	c.publisher(0, 0, "/queues/q")
	answered := uint32(math.MaxUint32 - 2)
	for i := range uint32(6) {
		c.transfer(0, one(answered+i), text("x"))
	}
	for want := answered; want != answered+6; {
		d := await[*amqp10.Disposition](c)
		if d.First != want {
			t.Fatalf("first %d, want %d", d.First, want)
		}
		want = d.First + 1
		if d.Last.Set {
			want = d.Last.Value + 1
		}
	}
}

// A message that is larger than a frame comes back as it was sent.
func TestLargeMessages(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	c := n.session(t)
	c.publisher(0, 0, "/queues/q")
	body := bytes.Repeat([]byte("0123456789abcdef"), 40<<10)
	payload := text(string(body))
	for at := 0; at < len(payload); at += 64 << 10 {
		transfer := amqp10.Transfer{More: at+64<<10 < len(payload)}
		if at == 0 {
			transfer.DeliveryID, transfer.DeliveryTag = amqp10.Some[uint32](0), []byte{0}
		}
		c.transfer(0, transfer, payload[at:min(len(payload), at+64<<10)])
	}
	await[*amqp10.Disposition](c)
	c.consumer(0, 1, "q", 1)
	f := awaitFrame[*amqp10.Transfer](c) // this client takes frames of any size
	if got := c.bodyOf(f.payload); got != string(body) {
		t.Errorf("%d bytes come back of %d", len(got), len(body))
	}
}

// What waits for its route to be stored is answered in the end, also of a client that has nothing more to say.
func TestAllIsAnswered(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		n := serve(t, broker.Options{}, nil)
		n.declare(t, "q", amqp.Table{"x-queue-type": kind})
		c := n.session(t)
		c.publisher(0, 0, "/queues/q")
		const count = 1000
		sent, answered, limit := uint32(0), uint32(0), uint32(170)
		deadline := time.Now().Add(patience)
		for answered < count && time.Now().Before(deadline) {
			for ; sent < limit && sent < count; sent++ {
				c.transfer(0, one(sent), text("x"))
			}
			f, err := c.read()
			if err != nil {
				t.Fatal(err)
			}
			switch f := f.is.(type) {
			case *amqp10.Disposition:
				answered = max(f.First, f.Last.Value) + 1
			case *amqp10.Flow:
				if f.Handle.Set {
					limit = f.DeliveryCount.Value + f.LinkCredit.Value
				}
			default:
				t.Fatalf("%s: %+v", kind, f)
			}
		}
		if answered != count {
			t.Errorf("%s: %d of %d are answered", kind, answered, count)
		}
	}
}

// Messages without a route in one read with others of their link: each gets its outcome, in the order of the messages.
func TestOutcomesInOneRead(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			n := serve(t, broker.Options{}, nil)
			n.declare(t, "q", amqp.Table{"x-queue-type": kind})
			c := n.session(t)
			c.publisher(0, 0, "")
			to := func(b []byte, id uint32, queue string) []byte {
				properties := amqp10.Properties{To: []byte("/queues/" + queue)}
				transfer := one(id)
				b, _ = amqp10.AppendTransfer(b, 0, &transfer, 1<<20, 0, properties.Append(nil), text("x"))
				return b
			}
			var b []byte
			want := map[uint32]amqp10.Descriptor{}
			for id, queue := range []string{"q", "q", "nowhere", "q", "nowhere"} {
				b = to(b, uint32(id), queue)
				want[uint32(id)] = map[string]amqp10.Descriptor{"q": amqp10.DescriptorAccepted, "nowhere": amqp10.DescriptorReleased}[queue]
			}
			c.write(b)
			for next := uint32(0); next < 5; next++ {
				d := await[*amqp10.Disposition](c)
				if d.First != next {
					t.Fatalf("%+v, want the outcome of %d", d, next)
				}
				for ; ; next++ {
					if d.State.Descriptor() != want[next] {
						t.Errorf("%d is %s, want %s", next, d.State.Descriptor(), want[next])
					}
					if !d.Last.Set || next == d.Last.Value {
						break
					}
				}
			}
		})
	}
}

// The refusal of a message that several queues were to get names the one that is full, in whatever log it is.
func TestARefusalNamesItsQueue(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	ch := n.channel(t)
	full := amqp.Table{"x-queue-type": "quorum", "x-max-length": int32(1), "x-overflow": "reject-publish"}
	n.declare(t, "full", full)
	n.declare(t, "room", amqp.Table{"x-queue-type": "quorum"})
	n.declare(t, "classic", nil)
	for _, q := range []string{"full", "room", "classic"} {
		if err := ch.QueueBind(q, "", "amq.fanout", false, nil); err != nil {
			t.Fatal(err)
		}
	}
	c := n.session(t)
	c.publisher(0, 0, "/exchanges/amq.fanout")
	c.transfer(0, one(0), text("a"))
	if d := await[*amqp10.Disposition](c); d.State.Descriptor() != amqp10.DescriptorAccepted {
		t.Fatalf("%+v", d)
	}
	c.transfer(0, one(1), text("b"))
	var r amqp10.Rejected
	if err := r.Decode(await[*amqp10.Disposition](c).State); err != nil {
		t.Fatal(err)
	}
	c.want(r.Error, amqp10.ConditionResourceLimitExceeded, "queue 'full' exceeded maximum length")
}

// A publisher gets RabbitMQ's credit, and more at a time once it has used a good deal of it; in strict mode it does not.
func TestCreditOfABusyPublisher(t *testing.T) {
	for name, strict := range map[string]bool{"default": false, "strict": true} {
		t.Run(name, func(t *testing.T) {
			n := serve(t, broker.Options{}, func(o *session10.Options) { o.Strict = strict })
			n.declare(t, "q", nil)
			c := n.session(t)
			type grant struct{ count, credit uint32 }
			var got []grant
			note := func(f *amqp10.Flow) {
				if f.Handle.Set {
					got = append(got, grant{f.DeliveryCount.Value, f.LinkCredit.Value})
				}
			}
			note(c.publisher(0, 0, "/queues/q"))
			for id := range uint32(1900) {
				left := got[len(got)-1]
				for left.count+left.credit == id {
					note(await[*amqp10.Flow](c))
					left = got[len(got)-1]
				}
				c.transfer(0, amqp10.Transfer{DeliveryID: amqp10.Some(id), DeliveryTag: []byte{1}, Settled: amqp10.Some(true)}, text("m"))
			}
			for got[len(got)-1].count < 1300 {
				note(await[*amqp10.Flow](c))
			}
			want := []grant{{0, 170}}
			for len(want) <= 10 {
				want = append(want, grant{want[len(want)-1].count + 85, 170})
			}
			if strict {
				for want[len(want)-1].count < 1300 {
					want = append(want, grant{want[len(want)-1].count + 85, 170})
				}
			} else {
				want = append(want, grant{851, 1000}, grant{1351, 1000})
			}
			if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}

// A message with values of another type in its header, properties and application properties is taken, as by RabbitMQ, and readers of
// both protocols get what can be made of it. A user-id that is a string is not.
func TestValuesOfAnotherType(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	c := n.session(t)
	c.publisher(0, 0, "/queues/q")
	b, start := amqp10.BeginList(amqp10.AppendDescriptor(nil, amqp10.DescriptorProperties))
	b = amqp10.EndCompound(amqp10.AppendUint(amqp10.AppendNull(amqp10.AppendLong(b, 123)), 7), start, 3)
	c.transfer(0, one(0), append(b, text("x")...))
	d := await[*amqp10.Disposition](c)
	if got := amqp10.Descriptor(d.State.Descriptor()); got != amqp10.DescriptorAccepted {
		t.Errorf("the outcome is %v, want accepted", got)
	}
}

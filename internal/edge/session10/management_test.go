package session10_test

import (
	"fmt"
	"strings"
	"testing"

	"bartleby.mq/internal/core/declare"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp10"
)

// manage attaches the pair of links to the management node.
func (c *client) manage(channel uint16, requests, answers uint32) {
	c.t.Helper()
	b, start := amqp10.BeginMap(nil)
	paired, _, _ := amqp10.ReadValue(amqp10.EndCompound(amqp10.AppendBool(amqp10.AppendSymbol(b, "paired"), true), start, 2))
	node, me := []byte("/management"), []byte("me")
	settled := amqp10.Some(amqp10.SenderSettleModeSettled)
	c.send(channel, &amqp10.Attach{
		Name: []byte("pair"), Handle: requests, Role: amqp10.RoleSender, SndSettleMode: settled, InitialDeliveryCount: amqp10.Some[uint32](0),
		Source: composite(&amqp10.Source{Address: me}), Target: composite(&amqp10.Target{Address: node}), Properties: paired,
	})
	await[*amqp10.Attach](c)
	if f := await[*amqp10.Flow](c); f.LinkCredit.Value != 8 {
		c.t.Errorf("credit %d", f.LinkCredit.Value)
	}
	c.send(channel, &amqp10.Attach{
		Name: []byte("pair"), Handle: answers, Role: amqp10.RoleReceiver, SndSettleMode: settled,
		Source: composite(&amqp10.Source{Address: node}), Target: composite(&amqp10.Target{Address: me}), Properties: paired,
	})
	await[*amqp10.Attach](c)
	c.credit(channel, answers, 0, 1000, false)
}

// fieldsOf is a map of strings to values.
func fieldsOf(pairs ...any) amqp10.Value {
	b, start := amqp10.BeginMap(nil)
	for i := 0; i < len(pairs); i += 2 {
		b = amqp10.AppendString(b, pairs[i].(string))
		switch v := pairs[i+1].(type) {
		case string:
			b = amqp10.AppendString(b, v)
		case bool:
			b = amqp10.AppendBool(b, v)
		case int:
			b = amqp10.AppendLong(b, int64(v))
		case amqp10.Value:
			b = v.Append(b)
		}
	}
	v, _, err := amqp10.ReadValue(amqp10.EndCompound(b, start, len(pairs)))
	if err != nil {
		panic(err)
	}
	return v
}

var requests uint32

// ask sends a request and returns the answer.
func (c *client) ask(method, target string, body amqp10.Value) (status string, answer amqp10.Value) {
	c.t.Helper()
	requests++
	id, _, _ := amqp10.ReadValue(amqp10.AppendUlong(nil, uint64(requests)))
	b := (&amqp10.Properties{MessageID: id, To: []byte(target), Subject: []byte(method), ReplyTo: []byte("$me")}).Append(nil)
	b = amqp10.AppendDescriptor(b, amqp10.DescriptorAMQPValue)
	if body.IsNull() {
		b = amqp10.AppendNull(b)
	} else {
		b = body.Append(b)
	}
	transfer := one(requests)
	transfer.Settled = amqp10.Some(true)
	c.transfer(0, transfer, b)
	tr, payload := awaitTransfer(c)
	m, err := amqp10.ParseMessage(payload)
	if err == nil {
		err = m.Check()
	}
	if err != nil || !tr.Settled.Value || tr.Handle != 1 {
		c.t.Fatalf("%+v %v", tr, err)
	}
	if !m.Property(amqp10.PropertyCorrelationID).Equal(id) {
		c.t.Errorf("it answers another request")
	}
	subject, _ := m.Property(amqp10.PropertySubject).Text()
	_, v, _, err := amqp10.NextSection(m.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(subject), v.Underlying()
}

func textAt(v amqp10.Value, key string) string {
	found, _ := v.Lookup(key)
	s, _ := found.Text()
	return string(s)
}

func numberAt(v amqp10.Value, key string) uint64 {
	found, _ := v.Lookup(key)
	n, _ := found.Uint64()
	return n
}

// Clients declare, bind, purge and delete by requests.
func TestManagement(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	c := n.session(t)
	c.manage(0, 0, 1)
	var none amqp10.Value
	ask := func(method, target string, body amqp10.Value, want string) amqp10.Value {
		t.Helper()
		status, answer := c.ask(method, target, body)
		if status != want {
			s, _ := answer.Text()
			t.Errorf("%s %s: %s %s, want %s", method, target, status, s, want)
		}
		return answer
	}
	quorum := fieldsOf("durable", true, "arguments", fieldsOf("x-queue-type", "quorum", "x-max-length", 5))
	q := ask("PUT", "/queues/my%20q", quorum, "201")
	if textAt(q, "name") != "my q" || textAt(q, "type") != "quorum" || textAt(q, "vhost") != "/" || numberAt(q, "message_count") != 0 {
		t.Errorf("%q %q", textAt(q, "name"), textAt(q, "type"))
	}
	ask("PUT", "/queues/my%20q", quorum, "200")
	ask("PUT", "/queues/my%20q", fieldsOf("durable", true), "409")
	ask("PUT", "/queues/x", fieldsOf("colour", "red"), "400")
	ask("PUT", "/queues/x", fieldsOf("durable", "yes"), "400")
	ask("PUT", "/queues/", fieldsOf(), "400")
	ask("PUT", "/queues/amq.mine", fieldsOf(), "403")
	ask("PUT", "/queues/x", none, "400")
	ask("GET", "/queues/none", none, "404")
	ask("PUT", "/exchanges/e", fieldsOf("type", "topic"), "204")
	ask("PUT", "/exchanges/e", fieldsOf("type", "fanout"), "409")
	ask("PUT", "/exchanges/f", fieldsOf("type", "strange"), "400")
	ask("PUT", "/exchanges/", fieldsOf(), "403")
	ask("POST", "/bindings", fieldsOf("source", "e", "destination_queue", "my q", "binding_key", "a.#", "arguments", fieldsOf()), "204")
	ask("POST", "/bindings", fieldsOf("source", "e", "destination_queue", "my q", "binding_key", "b/~", "arguments", fieldsOf("n", 1)), "204")
	ask("POST", "/bindings", fieldsOf("source", "e", "destination_exchange", "amq.fanout", "binding_key", "", "arguments", fieldsOf()), "204")
	ask("POST", "/bindings", fieldsOf("source", "", "destination_queue", "my q", "binding_key", "x"), "403")
	ask("POST", "/bindings", fieldsOf("source", "nowhere", "destination_queue", "my q", "binding_key", "x"), "400")
	list := ask("GET", "/bindings?src=e&dstq=my+q&key=b%2F~", none, "200")
	if list.Len() != 1 {
		t.Fatalf("%d bindings", list.Len())
	}
	location := textAt(list.At(0), "location")
	if !strings.HasPrefix(location, "/bindings/src=e;dstq=my%20q;key=b%2F~;args=") || strings.HasSuffix(location, "args=") || textAt(list.At(0), "destination_queue") != "my q" {
		t.Errorf("%s", location)
	}
	ask("DELETE", location, none, "204")
	if list := ask("GET", "/bindings?src=e&dstq=my+q&key=b%2F~", none, "200"); list.Len() != 0 {
		t.Errorf("%d bindings are left", list.Len())
	}
	if list := ask("GET", "/bindings?src=e&dste=amq.fanout&key=", none, "200"); list.Len() != 1 {
		t.Errorf("%d bindings of exchanges", list.Len())
	}
	ask("GET", "/bindings?src=e&key=x", none, "400")
	ask("DELETE", "/bindings/src=e;dst=x;key=;args=", none, "400")
	ask("DELETE", "/bindings/src=e;dstq=my%20q;key=none;args=", none, "204")
	ch := n.channel(t)
	if err := ch.Publish("e", "a.b", false, false, amqp.Publishing{Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if err := ch.Close(); err != nil { // its publish comes before
		t.Fatal(err)
	}
	n.publish(t, "my q", "y")
	if q := ask("GET", "/queues/my%20q", none, "200"); numberAt(q, "message_count") != 2 {
		t.Errorf("%d messages", numberAt(q, "message_count"))
	}
	if a := ask("DELETE", "/queues/my%20q/messages", none, "200"); numberAt(a, "message_count") != 2 {
		t.Errorf("%d purged", numberAt(a, "message_count"))
	}
	ask("DELETE", "/queues/none/messages", none, "404")
	ask("DELETE", "/queues/my%20q", none, "200")
	ask("DELETE", "/exchanges/e", none, "204")
	ask("DELETE", "/exchanges/amq.direct", none, "403")
	ask("PUT", "/auth/tokens", none, "400")
	ask("BREW", "/pots/1", none, "404")
	// The ends of the pair go one by one, and another one may come.
	c.send(0, &amqp10.Detach{Handle: 0, Closed: true}, &amqp10.Detach{Handle: 1, Closed: true})
	awaitDetach(c)
	awaitDetach(c)
	c.manage(0, 0, 1)
	ask("PUT", "/queues/q", fieldsOf(), "201")
}

// RabbitMQ's Python client sends the body of a request before its properties.
func TestARequestInAnotherOrder(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	c := n.session(t)
	c.manage(0, 0, 1)
	b := amqp10.AppendNull(amqp10.AppendDescriptor(nil, amqp10.DescriptorAMQPValue))
	b = (&amqp10.Properties{To: []byte("/queues/q"), Subject: []byte("GET"), ReplyTo: []byte("$me")}).Append(b)
	transfer := one(0)
	transfer.Settled = amqp10.Some(true)
	c.transfer(0, transfer, b)
	_, payload := awaitTransfer(c)
	m, err := amqp10.ParseMessage(payload)
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := m.Property(amqp10.PropertySubject).Text(); string(status) != "200" {
		t.Errorf("status %s", status)
	}
}

// A client without rights ends its session, as in RabbitMQ, and one that breaks the form of requests too.
func TestWrongRequests(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	for name, s := range map[string]struct {
		do        func(c *client)
		condition string
	}{
		"not settled": {func(c *client) { c.manage(0, 0, 1); c.transfer(0, one(0), text("x")) }, amqp10.ConditionInvalidField},
		"in pieces": {func(c *client) {
			c.manage(0, 0, 1)
			transfer := one(0)
			transfer.More = true
			c.transfer(0, transfer, text("x"))
		}, amqp10.ConditionNotImplemented},
		"no properties": {func(c *client) {
			c.manage(0, 0, 1)
			transfer := one(0)
			transfer.Settled = amqp10.Some(true)
			c.transfer(0, transfer, text("x"))
		}, amqp10.ConditionInvalidField},
		"garbage": {func(c *client) {
			c.manage(0, 0, 1)
			transfer := one(0)
			transfer.Settled = amqp10.Some(true)
			c.transfer(0, transfer, []byte("garbage"))
		}, amqp10.ConditionDecodeError},
		"no credit for the answer": {func(c *client) {
			c.manage(0, 0, 1)
			c.credit(0, 1, 0, 0, false)
			transfer := one(0)
			transfer.Settled = amqp10.Some(true)
			for range 9 {
				c.transfer(0, transfer, (&amqp10.Properties{To: []byte("/queues/x"), Subject: []byte("GET"), ReplyTo: []byte("$me")}).Append(nil))
			}
		}, amqp10.ConditionPreconditionFailed},
	} {
		t.Run(name, func(t *testing.T) {
			c := n.session(t)
			s.do(c)
			c.want(awaitEnd(c).Error, s.condition, "")
			c.begin(0, 1000)
		})
	}
	c := n.session(t)
	c.send(0, &amqp10.Attach{
		Name: []byte("pair"), Role: amqp10.RoleSender, SndSettleMode: amqp10.Some(amqp10.SenderSettleModeSettled), InitialDeliveryCount: amqp10.Some[uint32](0),
		Source: composite(&amqp10.Source{}), Target: composite(&amqp10.Target{Address: []byte("/management")}),
	})
	await[*amqp10.Attach](c)
	c.want(awaitDetach(c).Error, amqp10.ConditionInvalidField, "Link property 'paired' is not set to boolean value 'true'")
}

// Whoever is going to answer asks whether the requester is still there. Its own session does not see it, as in RabbitMQ.
func TestTheNodeOfRepliesIsFound(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	requester, c := n.session(t), n.session(t)
	address := requester.dynamic(2, "rabbitmq:volatile-queue", true)
	name := strings.TrimPrefix(address, "/queues/")
	requester.manage(0, 0, 1)
	c.manage(0, 0, 1)
	var none amqp10.Value
	status := func(c *client, method, path, want string) amqp10.Value {
		t.Helper()
		status, answer := c.ask(method, path, none)
		if status != want {
			t.Errorf("%s %s: %s, want %s", method, path, status, want)
		}
		return answer
	}
	status(requester, "GET", address, "404")
	status(c, "DELETE", address+"/messages", "200")
	status(c, "DELETE", address, "200") // it stays
	q := status(c, "GET", address, "200")
	if textAt(q, "name") != name || textAt(q, "type") != "rabbit_volatile_queue" || numberAt(q, "consumer_count") != 1 || numberAt(q, "message_count") != 0 {
		t.Errorf("%s of type %s, %d consumers", textAt(q, "name"), textAt(q, "type"), numberAt(q, "consumer_count"))
	}
	if q, err := n.channel(t).QueueDeclarePassive(name, false, false, false, false, nil); err != nil || q.Consumers != 1 {
		t.Errorf("by AMQP 0-9-1: %v %v", q, err)
	}
	requester.send(0, &amqp10.Detach{Handle: 2, Closed: true})
	awaitDetach(requester)
	status(c, "GET", address, "404")
	status(c, "DELETE", address+"/messages", "404")
	if _, err := n.channel(t).QueueDeclarePassive(name, false, false, false, false, nil); err == nil {
		t.Error("AMQP 0-9-1 finds who is gone")
	}
}

// A client that ends its link, its session or its connection behind a request without waiting hears the answer first, as long as its
// window is open: RabbitMQ answers so before the end of a session, and most often before that of a connection.
func TestAnEndBehindARequest(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	get := amqp10.AppendNull(amqp10.AppendDescriptor((&amqp10.Properties{To: []byte("/queues/q"), Subject: []byte("GET"), ReplyTo: []byte("$me")}).Append(nil), amqp10.DescriptorAMQPValue))
	transfer := one(0)
	transfer.Settled = amqp10.Some(true)
	for name, last := range map[string]amqp10.Composite{"link": &amqp10.Detach{Handle: 1, Closed: true}, "session": &amqp10.End{}, "connection": &amqp10.Close{}} {
		t.Run(name, func(t *testing.T) {
			c := n.session(t)
			c.manage(0, 0, 1)
			b, _ := amqp10.AppendTransfer(nil, 0, &transfer, 1<<20, 0, get)
			b, _ = amqp10.AppendTransfer(b, 0, &transfer, 1<<20, 0, get)
			c.write(amqp10.AppendFrame(b, 0, last))
			awaitTransfer(c)
			awaitTransfer(c)
			f, err := c.read()
			if err != nil {
				t.Fatal(err)
			}
			if _, flow := f.is.(*amqp10.Flow); flow {
				f, err = c.read()
			}
			if got, want := fmt.Sprintf("%T", f.is), fmt.Sprintf("%T", last); err != nil || got != want {
				t.Errorf("%s (%v), want %s", got, err, want)
			}
		})
	}
	t.Run("closed window", func(t *testing.T) {
		c := n.open(t)
		c.begin(0, 1)
		c.manage(0, 0, 1) // its credit opens the window
		c.send(0, &amqp10.Flow{NextIncomingID: amqp10.Some[uint32](0), IncomingWindow: 1, OutgoingWindow: 1000})
		b, _ := amqp10.AppendTransfer(nil, 0, &transfer, 1<<20, 0, get)
		b, _ = amqp10.AppendTransfer(b, 0, &transfer, 1<<20, 0, get)
		c.write(amqp10.AppendFrame(b, 0, &amqp10.End{}))
		awaitTransfer(c)
		await[*amqp10.End](c)
		c.begin(0, 1000)
		c.manage(0, 0, 1)
		if status, _ := c.ask("GET", "/queues/q", amqp10.Value{}); status != "200" {
			t.Errorf("%s by another session", status)
		}
	})
}

// Behind a token the broker looks at the rights to all links of the connection again, as RabbitMQ does.
func TestATokenReviewsRights(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	token := func() amqp10.Value {
		v, _, _ := amqp10.ReadValue(amqp10.AppendBinary(nil, []byte("token")))
		return v
	}()
	may := func(write, read string) {
		t.Helper()
		if _, err := n.b.By("").Do(declare.PutPermission{Permission: auth.Permission{User: "guest", VHost: "/", Configure: ".*", Write: write, Read: read}}); err != nil {
			t.Fatal(err)
		}
	}
	c := n.session(t)
	c.manage(0, 0, 1)
	for channel := uint16(1); channel <= 3; channel++ {
		c.begin(channel, 1000)
	}
	c.publisher(1, 0, "/exchanges/amq.topic/k")
	c.consumer(2, 0, "q", 0)
	c.publisher(3, 0, "")
	present := func(want string) {
		t.Helper()
		if status, _ := c.ask("PUT", "/auth/tokens", token); status != want {
			t.Errorf("status %s", status)
		}
	}
	ends := func(channel uint16, text string) {
		t.Helper()
		for {
			f, err := c.read()
			if err != nil {
				t.Fatal(err)
			}
			if end, ok := f.is.(*amqp10.End); ok {
				if f.channel != channel {
					t.Errorf("session %d ends, want %d", f.channel, channel)
				}
				c.want(end.Error, amqp10.ConditionUnauthorizedAccess, text)
				return
			}
		}
	}
	present("204")
	c.fence() // all stay
	may("^q$", ".*")
	c.fence()
	present("204")
	ends(1, "write access to exchange 'amq.topic' in vhost '/' refused for user 'guest'")
	c.consumer(0, 2, "q", 0) // on the session of the token itself
	may("^q$", "^r$")
	present("204")
	ends(2, "read access to queue 'q' in vhost '/' refused for user 'guest'")
	ends(0, "read access to queue 'q' in vhost '/' refused for user 'guest'")
	c.fence() // the others stay
	c.begin(0, 1000)
	c.manage(0, 0, 1)
	if _, err := n.b.By("").Do(declare.DeletePermission{VHost: "/", User: "guest"}); err != nil {
		t.Fatal(err)
	}
	present("204")
	c.want(awaitClose(c).Error, amqp10.ConditionUnauthorizedAccess, "access to vhost / failed for new credential: access to vhost '/' refused for user 'guest'")
}

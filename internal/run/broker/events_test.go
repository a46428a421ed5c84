package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/wire/amqp091"
)

// listen has a queue get all events from now on.
func listen(t *testing.T, c *Connection) {
	t.Helper()
	mustDeclare(t, c, "events")
	if _, err := c.Bind(topology.BindingDecl{Source: topology.EventExchange, DestinationKind: topology.QueueResource, Destination: "events", Key: "#"}); err != nil {
		t.Fatal(err)
	}
}

// heard takes the events from the queue, in order, as lines: the key, and the headers by name.
func heard(t *testing.T, c *Connection) (list []string) {
	t.Helper()
	c.b.events.flush()
	takeAll(t, c, "events", func(rec message.Record, p amqp091.PropertyList, err error) {
		if err != nil || p.DeliveryMode == nil || *p.DeliveryMode != 2 || p.Timestamp == nil || len(rec.Body()) > 0 {
			t.Fatalf("event %s with properties %+v, %v and body %q", rec.Key(), p, err, rec.Body())
		}
		if ms, _ := p.Headers.Get("timestamp_in_ms"); uint64(ms.(int64)/1000) != *p.Timestamp {
			t.Errorf("event %s at %d s and %v ms", rec.Key(), *p.Timestamp, ms)
		}
		line := string(rec.Key())
		for _, f := range p.Headers {
			if f.Key != "timestamp_in_ms" {
				line += fmt.Sprintf(" %s=%v", f.Key, f.Value)
			}
		}
		list = append(list, line)
	})
	return list
}

// takeAll takes what is ready in a queue, and calls f with each record and its properties, which may be malformed.
func takeAll(t *testing.T, c *Connection, queue message.QueueName, f func(message.Record, amqp091.PropertyList, error)) {
	t.Helper()
	var window bodies.Window
	defer window.Free()
	for {
		g, ok, err := c.Get(queue, true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
		b, err := c.b.bodies.Read(g.Body, &window)
		if err != nil {
			t.Fatal(err)
		}
		rec := message.Record(b)
		p, err := amqp091.DecodeProps(rec.Properties())
		f(rec, p, err)
		c.b.release(&g.Delivery)
	}
}

// A client that keeps to the usual frame_max can read every event and copy, however large what they tell of.
func TestNoticesFitIntoAFrame(t *testing.T) {
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict=%v", strict), func(t *testing.T) {
			o := withEvents
			o.Strict = strict
			c := open(t, o)
			listen(t, c)
			traceInto(t, c, "copies")
			heard(t, c)
			large := amqp091.Field{Key: "x-large", Value: strings.Repeat("\x01\x02\"\\", 15000)} // 60 KB, as an Erlang term 150
			mustDeclare(t, c, "large", large)
			publish(t, c, "", "large", "m", amqp091.PropertyList{Headers: amqp091.Table{{Key: "large", Value: strings.Repeat("x", 130<<10)}}})
			c.b.events.flush()
			c.b.traces.flush()
			for queue, name := range map[message.QueueName]string{"events": "arguments", "copies": "properties"} {
				left, n := "", 0
				takeAll(t, c, queue, func(rec message.Record, p amqp091.PropertyList, err error) {
					n++
					if size := len(rec.Properties()); !strict && size > 128<<10 {
						t.Errorf("%s has properties of %d bytes", rec.Key(), size)
					}
					left += join(p.Headers, "left_out")
				})
				if n == 0 || strict && left != "" || !strict && left != name {
					t.Errorf("%d messages in %s, left out: %q; want %q, none in strict mode", n, queue, left, name)
				}
			}
		})
	}
}

var withEvents = Options{NodeName: "rabbit@here", Events: EventExchange{Enabled: true, VHost: "/"}}

// Each operation is told with RabbitMQ's key and facts: see what rabbitmq_event_exchange of 4.3.6 publishes for the same.
func TestEventsOfDeclarations(t *testing.T) {
	c := open(t, withEvents)
	listen(t, c)
	want(t, "the first binding", heard(t, c), "binding.created arguments=[] destination_kind=queue destination_name=events routing_key=# source_kind=exchange source_name=amq.rabbitmq.event user_who_performed_action=guest vhost=/")
	for _, step := range []struct {
		what string
		do   func() error
		want []string
	}{
		{"exchange", func() error {
			_, err := c.DeclareExchange(topology.ExchangeDecl{Name: "ex", Type: routing.Topic, Durable: true, Arguments: amqp091.Table{{Key: "alternate-exchange", Value: "ae"}}})
			return err
		}, []string{"exchange.created arguments=[{<<\"alternate-exchange\">>,longstr,<<\"ae\">>}] auto_delete=false durable=true internal=false name=ex policy= type=topic user_who_performed_action=guest vhost=/"}},
		{"exchange again", func() error {
			_, err := c.DeclareExchange(topology.ExchangeDecl{Name: "ex", Type: routing.Topic, Durable: true, Arguments: amqp091.Table{{Key: "alternate-exchange", Value: "ae"}}})
			return err
		}, nil},
		{"queue", func() error {
			_, err := c.DeclareQueue(topology.QueueDecl{Name: "cq", Durable: true, Arguments: amqp091.Table{{Key: "x-max-length", Value: int32(5)}}})
			return err
		}, []string{"queue.created arguments=[{<<\"x-max-length\">>,signedint,5} {<<\"x-queue-type\">>,longstr,<<\"classic\">>}] auto_delete=false durable=true exclusive=false leader=rabbit@here members=[rabbit@here] name=cq owner_pid= type=rabbit_classic_queue user_who_performed_action=guest vhost=/"}},
		{"quorum queue", func() error {
			_, err := c.DeclareQueue(topology.QueueDecl{Name: "qq", Durable: true, Arguments: amqp091.Table{{Key: "x-queue-type", Value: "quorum"}}})
			return err
		}, []string{"queue.created arguments=[{<<\"x-queue-type\">>,longstr,<<\"quorum\">>}] auto_delete=false durable=true exclusive=false name=qq type=rabbit_quorum_queue user_who_performed_action=guest vhost=/"}},
		{"binding", func() error {
			_, err := c.Bind(topology.BindingDecl{Source: "ex", DestinationKind: topology.QueueResource, Destination: "cq", Key: "k", Arguments: amqp091.Table{{Key: "a", Value: int32(1)}}})
			return err
		}, []string{"binding.created arguments=[{<<\"a\">>,signedint,1}] destination_kind=queue destination_name=cq routing_key=k source_kind=exchange source_name=ex user_who_performed_action=guest vhost=/"}},
		{"deletion of a queue", func() error { _, err := c.DeleteQueue("cq", false, false); return err }, []string{
			"binding.deleted arguments=[{<<\"a\">>,signedint,1}] destination_kind=queue destination_name=cq routing_key=k source_kind=exchange source_name=ex user_who_performed_action=guest vhost=/",
			"queue.deleted name=cq type=rabbit_classic_queue user_who_performed_action=guest vhost=/",
		}},
		{"deletion of an exchange", func() error { return c.DeleteExchange("ex", false) }, []string{"exchange.deleted name=ex user_who_performed_action=guest vhost=/"}},
		{"alarm", func() error {
			c.b.SetAlarm(Memory, true)
			c.b.SetAlarm(Memory, true)
			c.b.SetAlarm(Memory, false)
			return nil
		}, []string{"alarm.set node=rabbit@here source=memory", "alarm.cleared node=rabbit@here source=memory"}},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		want(t, step.what, heard(t, c), step.want...)
	}
}

// Administration is told with who did it, and never with a password.
func TestEventsOfAdministration(t *testing.T) {
	c := open(t, withEvents)
	listen(t, c)
	heard(t, c)
	a := c.b.By("ada")
	first := func(_ declare.Result, err error) error { return err }
	for _, step := range []struct {
		what string
		do   func() error
		want []string
	}{
		{"user", func() error {
			return first(a.Do(declare.PutUser{Name: "u", Password: hashPassword(auth.SHA256, "secret"), Tags: []auth.Tag{"monitoring", "management"}}))
		}, []string{"user.created name=u user_who_performed_action=ada", "user.tags.set name=u tags=[monitoring management] user_who_performed_action=ada"}},
		{"user again", func() error {
			return first(a.Do(declare.PutUser{Name: "u", Password: hashPassword(auth.SHA256, "secret"), Tags: nil}))
		},
			[]string{"user.password.changed name=u user_who_performed_action=ada", "user.tags.set name=u tags=[] user_who_performed_action=ada"}},
		{"permission", func() error {
			return first(a.Do(declare.PutPermission{Permission: auth.Permission{VHost: "/", User: "u", Configure: "c", Write: "w", Read: "r"}}))
		}, []string{"permission.created configure=c read=r user=u user_who_performed_action=ada vhost=/ write=w"}},
		{"topic permission", func() error {
			return first(a.Do(declare.PutTopicPermission{TopicPermission: auth.TopicPermission{VHost: "/", User: "u", Exchange: "amq.topic", Write: "w", Read: "r"}}))
		}, []string{"topic.permission.created exchange=amq.topic read=r user=u user_who_performed_action=ada vhost=/ write=w"}},
		{"topic permission deleted", func() error { return first(a.Do(declare.DeleteTopicPermissions{VHost: "/", User: "u", Exchange: nil})) }, []string{"topic.permission.deleted user=u user_who_performed_action=ada vhost=/"}},
		{"permission deleted", func() error { return first(a.Do(declare.DeletePermission{VHost: "/", User: "u"})) }, []string{"permission.deleted user=u user_who_performed_action=ada vhost=/"}},
		{"permission deleted again", func() error { return first(a.Do(declare.DeletePermission{VHost: "/", User: "u"})) }, nil},
		{"user limit", func() error {
			return first(a.Do(declare.SetUserLimits{Name: "u", Limits: map[auth.Limit]any{"max-connections": int64(5)}}))
		},
			[]string{"user.limits.set max-connections=5 name=limits user_who_performed_action=ada username=u"}},
		{"user limit cleared", func() error { return first(a.Do(declare.ClearUserLimit{Name: "u", Limit: "max-connections"})) }, []string{"user.limits.cleared name=limits user_who_performed_action=ada username=u"}},
		{"user deleted", func() error { return first(a.Do(declare.DeleteUser{Name: "u"})) }, []string{"user.deleted name=u user_who_performed_action=ada"}},
		{"limit", func() error {
			return first(a.Do(declare.SetVHostLimits{Name: "/", Limits: map[topology.Limit]any{topology.MaxQueues: int64(50)}}))
		}, []string{
			"parameter.set component=vhost-limits name=limits user_who_performed_action=ada value=[{max-queues 50}] vhost=/",
			"vhost.limits.set max-queues=50 name=limits user_who_performed_action=ada vhost=/",
		}},
		{"policy", func() error {
			return first(a.Do(declare.PutPolicy{VHost: "/", Policy: topology.PolicyDecl{Name: "pol", Pattern: "^cq", ApplyTo: "queues", Priority: int64(2), Definition: topology.Definition{"max-length": int64(10), "dead-letter-exchange": "d"}}}))
		}, []string{"policy.set apply-to=queues definition=[{dead-letter-exchange d} {max-length 10}] name=pol pattern=^cq priority=2 user_who_performed_action=ada vhost=/"}},
		{"policy deleted", func() error { return first(a.Do(declare.DeletePolicy{VHost: "/", Name: "pol"})) }, []string{"policy.cleared name=pol user_who_performed_action=ada vhost=/"}},
		{"parameter", func() error {
			return first(a.Do(declare.PutParameter{Parameter: topology.Parameter{VHost: "/", Component: "federation-upstream", Name: "p", Value: []byte(`{"uri":["amqp://u:secret@h/v?password=secret&a=1"],"n":1}`)}}))
		}, []string{"parameter.set component=federation-upstream name=p user_who_performed_action=ada value=[{n 1} {uri [amqp://u:****@h/v?password=****&a=1]}] vhost=/"}},
		{"parameter deleted", func() error {
			return first(a.Do(declare.DeleteParameter{VHost: "/", Component: "federation-upstream", Name: "p"}))
		}, []string{"parameter.cleared component=federation-upstream name=p user_who_performed_action=ada vhost=/"}},
		{"global parameter", func() error {
			return first(a.Do(declare.PutGlobalParameter{GlobalParameter: topology.GlobalParameter{Name: "g", Value: []byte(`{"a":1.5,"b":[null,true,{}]}`)}}))
		}, []string{"parameter.set component=global name=g user_who_performed_action=ada value=[{a 1.5} {b [null true []]}]"}},
		{"global parameter deleted", func() error { return first(a.Do(declare.DeleteGlobalParameter{Name: "g"})) }, []string{"parameter.cleared component=global name=g user_who_performed_action=ada"}},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		got := heard(t, c)
		want(t, step.what, got, step.want...)
		if strings.Contains(strings.Join(got, "\n"), "secret") {
			t.Errorf("%s: a password is told: %q", step.what, got)
		}
	}
}

// A virtual host is told with its exchanges, and with all that goes with it.
func TestEventsOfVirtualHosts(t *testing.T) {
	c := open(t, withEvents)
	listen(t, c)
	heard(t, c)
	a := c.b.By("guest")
	keys := func() (list []string) {
		for _, line := range heard(t, c) {
			key, _, _ := strings.Cut(line, " ")
			list = append(list, key)
		}
		return list
	}
	if _, err := a.As(&Identity{Name: "guest"}).Do(declare.PutVHost{Name: "v", Change: declare.VHostChange{Tags: &[]string{"a"}}}); err != nil {
		t.Fatal(err)
	}
	want(t, "made", keys(), slices.Concat(slices.Repeat([]string{"exchange.created"}, 7), []string{"vhost.created", "permission.created"})...)
	if _, err := a.Do(declare.PutVHost{Name: "v", Change: declare.VHostChange{Tracing: new(true)}}); err != nil {
		t.Fatal(err)
	}
	want(t, "changed", heard(t, c), `vhost.updated cluster_state=[{rabbit@here running}] default_queue_type=classic deletion_protection=false description= metadata=#{description => <<>>,tags => [a],default_queue_type => <<"classic">>} name=v protected_from_deletion=false tags=[a] tracing=true user_who_performed_action=guest`)
	v := c.b.As("guest", "v")
	mustDeclare(t, v, "q")
	if _, err := v.Bind(topology.BindingDecl{Source: "amq.topic", DestinationKind: topology.QueueResource, Destination: "q", Key: "k"}); err != nil {
		t.Fatal(err)
	}
	for _, operator := range []bool{false, true} {
		if _, err := a.Do(declare.PutPolicy{VHost: "v", Policy: topology.PolicyDecl{Name: "p", Pattern: "^x", Definition: topology.Definition{"max-length": int64(5)}}, Operator: operator}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Do(declare.SetVHostLimits{Name: "v", Limits: map[topology.Limit]any{topology.MaxQueues: int64(5)}}); err != nil {
		t.Fatal(err)
	}
	heard(t, c)
	if _, err := a.Do(declare.DeleteVHost{Name: "v"}); err != nil {
		t.Fatal(err)
	}
	want(t, "deleted", keys(), slices.Concat([]string{"permission.deleted", "binding.deleted", "queue.deleted"}, slices.Repeat([]string{"exchange.deleted"}, 7),
		[]string{"parameter.cleared", "vhost.limits.cleared", "parameter.cleared", "operator.policy.cleared", "policy.cleared", "vhost.deleted"})...)
}

// Where nobody listens facts are not looked for, and an event costs nothing.
func TestEventsThatNobodyHearsCostNothing(t *testing.T) {
	c := open(t, withEvents)
	n := testing.AllocsPerRun(100, func() {
		c.b.Notify("k", func() amqp091.Table { t.Error("facts are looked for"); return nil })
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
	listen(t, c)
	if _, err := c.DeleteQueue("events", false, false); err != nil {
		t.Fatal(err)
	}
	c.b.Notify("k", func() amqp091.Table { t.Error("facts are looked for after the last binding has gone"); return nil })
}

// The exchange is internal and cannot be deleted; with its bindings it survives a restart, and a start without events, in which
// nothing is told. It comes back with its virtual host.
func TestTheEventExchangeStays(t *testing.T) {
	fs := vfs.NewMem()
	start := func(events bool) *Connection {
		o := withEvents
		o.FS, o.Dir, o.Events.Enabled = fs, "data", events
		b, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if b.Empty() {
			if err := b.CreateDefault(Default{VHost: "/", User: "guest", Password: "guest", Tags: []string{"administrator"}, Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
				t.Fatal(err)
			}
		}
		return b.As("guest", "/")
	}
	told := func(c *Connection) int {
		if _, err := c.b.By("ada").Do(declare.PutUser{Name: "u", Password: auth.PasswordHash{}, Tags: nil}); err != nil {
			t.Fatal(err)
		}
		return len(heard(t, c))
	}
	stop := func(c *Connection) {
		if err := c.b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c := start(false)
	if err := c.PassiveExchange(topology.EventExchange); err == nil {
		t.Error("there is an exchange without events")
	}
	stop(c)
	c = start(true)
	listen(t, c)
	heard(t, c)
	if err := c.DeleteExchange(topology.EventExchange, false); err == nil {
		t.Error("a client may delete the exchange")
	}
	if _, err := c.PublishOne(&Publication{Exchange: []byte(topology.EventExchange), Raw: []byte{0, 0}}); err == nil {
		t.Error("a client may publish to the exchange")
	}
	stop(c)
	c = start(false)
	if n := told(c); n != 0 {
		t.Errorf("%d events are told with events off", n)
	}
	stop(c)
	c = start(true)
	if n := told(c); n == 0 {
		t.Error("nothing is told after a restart")
	}
	if _, err := c.b.By("").Do(declare.DeleteVHost{Name: "/"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.b.By("guest").As(&Identity{Name: "guest"}).Do(declare.PutVHost{Name: "/", Change: declare.All(topology.Metadata{})}); err != nil {
		t.Fatal(err)
	}
	listen(t, c)
	if n := told(c); n == 0 {
		t.Error("nothing is told in a virtual host that was made anew")
	}
	stop(c)
}

func FuzzEventsHidePasswords(f *testing.F) {
	for _, s := range []string{"secret", "a:b@c", "a/b@c", "p?q", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, password string) {
		password = "<<" + password + ">>"
		for _, uri := range []string{"amqp://user:" + password + "@host/v", "amqps://user:" + password + "@host?x=1", "amqp://host?PassWord=" + strings.ReplaceAll(password, "&", "")} {
			if shown := withoutPassword(uri); strings.Contains(shown, "<<") || strings.Contains(shown, ">>") {
				t.Errorf("%q is shown as %q", uri, shown)
			}
		}
	})
}

func TestAddressesInEvents(t *testing.T) {
	for host, want := range map[string]string{"127.0.0.1": "{127,0,0,1}", "::1": "{0,0,0,0,0,0,0,1}", "::ffff:10.0.0.1": "{10,0,0,1}", "": "", "unix": "unix"} {
		if got := hostFact(host); got != want {
			t.Errorf("%q is shown as %q, want %q", host, got, want)
		}
	}
	for uri, want := range map[string]string{"amqp://": "amqp://", "amqp://h/v": "amqp://h/v", "amqp://u@h": "amqp://u@h", "amqp://u:p@h:1/v?a=b": "amqp://u:****@h:1/v?a=b", "text": "text"} {
		if got := withoutPassword(uri); got != want {
			t.Errorf("%q is shown as %q, want %q", uri, got, want)
		}
	}
}

// Events tell of all virtual hosts and users: a client that may read every exchange of the virtual host binds a queue to them
// only with the tag administrator or monitoring, except in strict mode.
func TestEventsAreForThoseWhoSeeTheNode(t *testing.T) {
	for _, c := range []struct {
		tags   []auth.Tag
		strict bool
		may    bool
	}{{nil, false, false}, {[]auth.Tag{auth.Management}, false, false}, {[]auth.Tag{auth.Monitoring}, false, true}, {[]auth.Tag{auth.Administrator}, false, true}, {nil, true, true}} {
		node := startWith(t, newDisk(), Options{Strict: c.strict, Events: EventExchange{Enabled: true, VHost: "/"}})
		if _, err := node.b.By("").Do(declare.PutUser{Name: "ada", Password: auth.PasswordHash{}, Tags: c.tags}); err != nil {
			t.Fatal(err)
		}
		if _, err := node.b.By("").Do(declare.PutPermission{Permission: auth.Permission{User: "ada", VHost: "/", Configure: ".*", Write: ".*", Read: ".*"}}); err != nil {
			t.Fatal(err)
		}
		ada := node.b.As("ada", "/")
		mustDeclare(t, ada, "q")
		_, err := ada.Bind(topology.BindingDecl{Source: topology.EventExchange, DestinationKind: topology.QueueResource, Destination: "q", Key: "#"})
		if (err == nil) != c.may {
			t.Errorf("with the tags %v, strict %v: %v", c.tags, c.strict, err)
		}
	}
}

// A policymaker gets no events by an alternate exchange, also while somebody else listens to a few.
func TestNoPolicyLeadsEventsElsewhere(t *testing.T) {
	c := open(t, withEvents)
	if _, err := c.DeclareExchange(topology.ExchangeDecl{Name: "mine", Type: routing.Fanout, Durable: true}); err != nil {
		t.Fatal(err)
	}
	mustDeclare(t, c, "events")
	if _, err := c.Bind(topology.BindingDecl{Source: "mine", DestinationKind: topology.QueueResource, Destination: "events"}); err != nil {
		t.Fatal(err)
	}
	policy := topology.PolicyDecl{Name: "steal", Pattern: ".*", ApplyTo: "exchanges", Definition: topology.Definition{"alternate-exchange": "mine"}}
	if _, err := c.b.By("").Do(declare.PutPolicy{VHost: "/", Policy: policy}); err != nil {
		t.Fatal(err)
	}
	mustDeclare(t, c, "other")
	if _, err := c.Bind(topology.BindingDecl{Source: topology.EventExchange, DestinationKind: topology.QueueResource, Destination: "other", Key: "alarm.#"}); err != nil {
		t.Fatal(err)
	}
	mustDeclare(t, c, "one more")
	want(t, "by the alternate exchange", heard(t, c))
}

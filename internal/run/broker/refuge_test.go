package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

func with(key string, value any) amqp091.Field { return amqp091.Field{Key: key, Value: value} }

// lettersIn returns the histories in a queue, by body.
func lettersIn(t *testing.T, c *Connection, name message.QueueName) map[string]deadletter.History {
	t.Helper()
	found := map[string]deadletter.History{}
	decl, err := c.find(name, c.readable)
	if err != nil {
		return found
	}
	_, _, err = c.b.node.Browse(runtimeOf(decl), queue.Cursor{}, 1000, func(_ queue.View, r message.Record, history []byte) bool {
		h, err := deadletter.Parse(history)
		if err != nil {
			t.Error(err)
		}
		found[string(r.Body())] = h
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// deaths returns how many messages of the queue died with each outcome.
func deaths(c *Connection, name message.QueueName) (counts [deadletter.Outcomes]uint64) {
	for _, s := range c.b.CountQueues() {
		if s.Queue.Name != name {
			continue
		}
		for r := range s.Counts.Stats.Dead {
			for o, n := range s.Counts.Stats.Dead[r] {
				counts[o] += n
			}
		}
	}
	return counts
}

// dropped is what queues have dropped since the last call.
func dropped(c *Connection) (list []partition.Dropped) {
	c.b.node.TakeDrops(func(d *partition.Dropped) { list = append(list, *d) })
	return list
}

// fail takes the next message of a queue and gives it back as failed.
func fail(t *testing.T, c *Connection, name message.QueueName) {
	t.Helper()
	if err := c.Take(name, 1, RejectRequeues, func(*Shown) (bool, error) { return true, nil }); err != nil {
		t.Fatal(err)
	}
}

// lose makes one message die in each of some queues, so that it leads nowhere, each for another reason. The body is the
// queue's name.
func lose(t *testing.T, c *Connection) (why map[string]deadletter.Outcome) {
	t.Helper()
	if _, err := c.DeclareExchange(topology.ExchangeDecl{Name: "unbound", Type: routing.Fanout, Durable: true}); err != nil {
		t.Fatal(err)
	}
	mustDeclare(t, c, "full", with("x-max-length", int64(0)), with("x-overflow", "reject-publish"))
	why = map[string]deadletter.Outcome{}
	for _, kind := range []string{"classic", "quorum"} {
		for _, s := range []struct {
			name string
			why  deadletter.Outcome
			args []amqp091.Field
		}{
			{"missing", deadletter.MissingExchange, []amqp091.Field{with("x-dead-letter-exchange", "typo")}},
			{"unbound", deadletter.NoRoute, []amqp091.Field{with("x-dead-letter-exchange", "unbound")}},
			{"cycle", deadletter.Cycle, []amqp091.Field{with("x-dead-letter-exchange", ""), with("x-message-ttl", int64(0))}},
			{"full", deadletter.TargetRefused, []amqp091.Field{with("x-dead-letter-exchange", ""), with("x-dead-letter-routing-key", "full")}},
			{"limit", deadletter.NoExchange, []amqp091.Field{with("x-delivery-limit", int64(0))}},
		} {
			if kind == "classic" && s.name == "limit" || kind == "quorum" && s.name == "full" {
				continue // a classic queue has no limit; the refusal of another log comes when the letter has left its queue
			}
			name := s.name + "-" + kind
			mustDeclare(t, c, name, append(s.args, with("x-queue-type", kind))...)
			if !offer(t, c, name, name) {
				t.Fatalf("%s is not routed", name)
			}
			switch s.name {
			case "limit":
				fail(t, c, message.QueueName(name))
			case "cycle": // it expires
			default:
				kill(t, c, message.QueueName(name))
			}
			why[name] = s.why
		}
	}
	return why
}

// Dead letters that lead nowhere are in the lost and found, with their history, and with the reason why they are there.
// They count as that, not as dropped. A restart changes nothing.
func TestLettersThatLeadNowhereAreInTheLostAndFound(t *testing.T) {
	var logged lockedBuffer
	d := newDisk()
	o := Options{LostAndFound: true, Logger: slog.New(slog.NewTextHandler(&logged, nil))}
	c := startWith(t, d, o)
	c.b.node.WatchDrops(func() {})
	why := lose(t, c)
	eventually(t, "all are in the lost and found", func() bool { return len(lettersIn(t, c, LostAndFound)) == len(why) })
	check := func() {
		t.Helper()
		found := lettersIn(t, c, LostAndFound)
		for name, want := range why {
			h := found[name]
			if h.Lost != want || len(h.Deaths) != 1 || h.Deaths[0].Queue != name || h.Exchange != "" || h.Keys[0] != string(LostAndFound) {
				t.Errorf("%s: lost for %s, want %s; %+v", name, h.Lost, want, h)
			}
		}
	}
	check()
	for name := range why {
		eventually(t, name+" is counted", func() bool {
			return deaths(c, message.QueueName(name)) == [deadletter.Outcomes]uint64{deadletter.LostAndFound: 1}
		})
	}
	if drops := dropped(c); len(drops) > 0 {
		t.Errorf("the ledger has %+v", drops)
	}
	for name, reason := range why {
		if line := "queue=" + name + " why=" + reason.String() + " to=bartleby.lost-and-found"; strings.Count(logged.String(), line) != 1 {
			t.Errorf("the log does not have %q once", line)
		}
	}
	if text := logged.String(); strings.Contains(text, "are dropped") {
		t.Errorf("the log says that something is dropped:\n%s", text)
	}
	if err := c.b.Close(); err != nil {
		t.Fatal(err)
	}
	c = startWith(t, d, o)
	check()
}

// Without lost and found, in strict mode, and in virtual hosts of ApsaraMQ's profile such letters are dropped as ever, and
// no queue is made.
func TestStrictQueuesLoseTheirLettersAsEver(t *testing.T) {
	for name, o := range map[string]Options{
		"off": {}, "strict": {LostAndFound: true, Strict: true},
		"apsaramq": {LostAndFound: true, Topology: topology.Options{DefaultProfile: deadletter.ApsaraMQ}},
	} {
		t.Run(name, func(t *testing.T) {
			c := startWith(t, newDisk(), o)
			mustDeclare(t, c, "q", with("x-dead-letter-exchange", "typo"))
			offer(t, c, "q", "m")
			kill(t, c, "q")
			eventually(t, "it is dropped", func() bool { return deaths(c, "q")[deadletter.MissingExchange] == 1 })
			if n := holds(t, c, string(LostAndFound)); n >= 0 {
				t.Errorf("there is a lost and found, with %d messages", n)
			}
		})
	}
}

// A lost and found that cannot be made does not stop the letters: they are dropped, and the ledger says why. Once it can
// be made, later ones go there.
func TestWithoutALostAndFoundLettersAreDropped(t *testing.T) {
	c := startWith(t, newDisk(), Options{LostAndFound: true})
	c.b.node.WatchDrops(func() {})
	for _, kind := range []string{"classic", "quorum"} {
		mustDeclare(t, c, kind, with("x-queue-type", kind), with("x-dead-letter-exchange", "typo"))
	}
	if _, err := c.b.By("").Do(declare.SetVHostLimits{Name: "/", Limits: map[topology.Limit]any{topology.MaxQueues: int64(2)}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"classic", "quorum"} {
		offer(t, c, name, "m")
		kill(t, c, message.QueueName(name))
		eventually(t, name+" has dropped it", func() bool { return deaths(c, message.QueueName(name))[deadletter.MissingExchange] == 1 })
	}
	if drops := dropped(c); len(drops) != 2 || drops[0].Outcome != deadletter.MissingExchange {
		t.Errorf("the ledger has %+v", drops)
	}
	if _, err := c.b.By("").Do(declare.ClearVHostLimit{Name: "/", Limit: topology.MaxQueues}); err != nil {
		t.Fatal(err)
	}
	c.b.makings.mu.Lock()
	clear(c.b.makings.failed) // as after makeAgain
	c.b.makings.mu.Unlock()
	for _, name := range []string{"classic", "quorum"} {
		offer(t, c, name, name)
		kill(t, c, message.QueueName(name))
	}
	eventually(t, "the next ones are there", func() bool { return len(lettersIn(t, c, LostAndFound)) == 2 })
}

// A queue of that name which would lose the letters, or shows them to one connection only, is no lost and found.
func TestAnExclusiveQueueIsNoLostAndFound(t *testing.T) {
	c := startWith(t, newDisk(), Options{LostAndFound: true, LostAndFoundStrict: true, Strict: true}) // elsewhere nobody can declare it so
	mustDeclare(t, c, "q", with("x-dead-letter-exchange", "typo"))
	if _, err := c.DeclareQueue(topology.QueueDecl{Name: LostAndFound, Exclusive: true}); err != nil {
		t.Fatal(err)
	}
	offer(t, c, "q", "m")
	kill(t, c, "q")
	eventually(t, "it is dropped", func() bool { return deaths(c, "q")[deadletter.MissingExchange] == 1 })
}

// Names of the broker's own queues are reserved: a client makes none that cannot take what the broker puts there. One as the broker makes it may be
// declared, and one that is there is used as ever. In strict mode there is no such name.
func TestNamesOfTheBrokersOwnQueuesAreReserved(t *testing.T) {
	disk := newDisk()
	c := startWith(t, disk, Options{Strict: true})
	other := topology.QueueDecl{Name: "bartleby.other", Durable: true}
	mustDeclare(t, c, string(Archive))
	if _, err := c.DeclareQueue(other); err != nil {
		t.Fatal(err)
	}
	if err := c.b.Close(); err != nil {
		t.Fatal(err)
	}
	c = startWith(t, disk, Options{})
	if _, err := c.DeclareQueue(other); err != nil {
		t.Errorf("what is there is not declared again: %v", err)
	}
	archive := func() error {
		_, err := c.b.AsOperator("the Dead Letter Office", "/").DeclareQueue(OwnQueue("/", Archive))
		return err
	}
	if archive() == nil {
		t.Error("it takes an archive that keeps letters for ever")
	}
	for _, name := range []message.QueueName{Archive, other.Name} {
		if _, err := c.DeleteQueue(name, false, false); err != nil {
			t.Fatal(err)
		}
	}
	ttl := amqp091.Table{with("x-queue-type", "classic"), with("x-message-ttl", int32(ArchiveTTL))}
	for what, d := range map[string]topology.QueueDecl{
		"another name": other, "without arguments": {Name: Archive, Durable: true}, "transient": {Name: Archive, Arguments: ttl}, "exclusive": {Name: Archive, Exclusive: true, Arguments: ttl},
		"auto-delete": {Name: Archive, Durable: true, AutoDelete: true, Arguments: ttl}, "another TTL": {Name: Archive, Durable: true, Arguments: amqp091.Table{ttl[0], with("x-message-ttl", int64(1))}},
		"one argument more": {Name: Archive, Durable: true, Arguments: append(ttl[:2:2], with("x-max-length", int64(0)))}, "of the other": {Name: LostAndFound, Durable: true, Arguments: ttl},
		"a quorum queue": {Name: Archive, Durable: true, Arguments: amqp091.Table{with("x-queue-type", "quorum"), ttl[1]}},
	} {
		_, err := c.DeclareQueue(d)
		var refused *topology.Error
		if want := fmt.Sprintf("queue name '%s' contains reserved prefix 'bartleby.*'", d.Name); !errors.As(err, &refused) || refused.Kind != topology.AccessRefused || refused.Text != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := c.DeclareQueue(topology.QueueDecl{Name: Archive, Durable: true, Arguments: ttl}); err != nil {
		t.Errorf("as the broker makes it: %v", err)
	}
	if err := archive(); err != nil {
		t.Error(err)
	}
}

// What dies in the lost and found does not come back there, whatever policies say. Beyond its limit the oldest letters
// go, and the ledger says so.
func TestTheLostAndFoundHasAnEnd(t *testing.T) {
	c := startWith(t, newDisk(), Options{LostAndFound: true})
	c.b.node.WatchDrops(func() {})
	put := func(name, pattern string, d topology.Definition) {
		t.Helper()
		if _, err := c.b.By("").Do(declare.PutPolicy{VHost: "/", Policy: topology.PolicyDecl{Name: name, Pattern: pattern, Definition: d, Priority: int64(len(name))}}); err != nil {
			t.Fatal(err)
		}
	}
	mustDeclare(t, c, "q", with("x-dead-letter-exchange", "typo"))
	for _, body := range []string{"a", "b"} {
		offer(t, c, "q", body)
		kill(t, c, "q")
	}
	eventually(t, "both are there", func() bool { return len(lettersIn(t, c, LostAndFound)) == 2 })
	put("short", "^bartleby", topology.Definition{"max-length": int64(1)})
	eventually(t, "the oldest goes", func() bool { return deaths(c, LostAndFound)[deadletter.NoExchange] == 1 })
	if drops := dropped(c); len(drops) != 1 || drops[0].Queue.Name != string(LostAndFound) || drops[0].Reason != deadletter.MaxLen {
		t.Errorf("the ledger has %+v", drops)
	}
	// Two queues that send each other what they have no room for, one of them the lost and found.
	mustDeclare(t, c, "other", with("x-dead-letter-exchange", ""), with("x-dead-letter-routing-key", "other"), with("x-max-length", int64(1)))
	put("out again", "^bartleby", topology.Definition{"max-length": int64(1), "dead-letter-exchange": "", "dead-letter-routing-key": "other"})
	for _, body := range []string{"c", "d", "e", "f"} {
		offer(t, c, "q", body)
		kill(t, c, "q")
	}
	eventually(t, "all have come to rest", func() bool {
		return len(lettersIn(t, c, LostAndFound)) == 1 && len(lettersIn(t, c, "other")) == 1 && deaths(c, "other")[deadletter.Cycle] == 3
	})
}

// setMetadata changes the metadata of the virtual host.
func setMetadata(t *testing.T, c *Connection, change declare.VHostChange) {
	t.Helper()
	if _, err := c.b.By("").Do(declare.PutVHost{Name: "/", Change: change}); err != nil {
		t.Fatal(err)
	}
}

// Dead letters of a queue without a dead-letter exchange go where the virtual host's default says, to a queue of the same
// type that is made when the first of them needs it, in the order of their deaths. That begins and ends at once, and holds
// over a restart. What must be taken at least once goes there too.
func TestDefaultDeadLetterQueuesAreMadeWhenFirstNeeded(t *testing.T) {
	d := newDisk()
	c := startWith(t, d, Options{LostAndFound: true})
	c.b.node.WatchDrops(func() {})
	names := []message.QueueName{"classic", "quorum", "least"}
	mustDeclare(t, c, "classic", with("x-queue-type", "classic"))
	mustDeclare(t, c, "quorum", with("x-queue-type", "quorum"))
	mustDeclare(t, c, "least", with("x-queue-type", "quorum"), with("x-dead-letter-strategy", "at-least-once"), with("x-overflow", "reject-publish"))
	setMetadata(t, c, declare.VHostChange{DefaultDeadLetter: new("%q.dead")})
	c.b.node.SettleAll()
	const many = 700 // more than a slice
	for _, name := range names {
		for i := range many {
			offer(t, c, string(name), fmt.Sprintf("%04d", i))
		}
		if err := c.Take(name, 0, RejectRemoves, func(*Shown) (bool, error) { return true, nil }); err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		for _, name := range names {
			to := name + ".dead"
			eventually(t, "all are in "+string(to), func() bool { return holds(t, c, string(to)) == many })
			decl, err := c.find(to, c.readable)
			if err != nil {
				t.Fatal(err)
			}
			source, _ := c.find(name, c.readable)
			if decl.Type != source.Type || !decl.Durable {
				t.Errorf("%s is %s and durable=%v", to, decl.Type, decl.Durable)
			}
			last := ""
			if err := c.Peek(to, 0, func(s *Shown) bool {
				if body := string(s.Body); body < last {
					t.Errorf("%s: %s is behind %s", to, body, last)
				} else {
					last = body
				}
				return true
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	check()
	for _, name := range names {
		if got, want := deaths(c, name), ([deadletter.Outcomes]uint64{deadletter.Routed: many}); got != want {
			t.Errorf("%s: the outcomes are %v, want %v", name, got, want)
		}
	}
	if n := holds(t, c, string(LostAndFound)); n >= 0 {
		t.Errorf("%d are in the lost and found", n)
	}
	if err := c.b.Close(); err != nil {
		t.Fatal(err)
	}
	c = startWith(t, d, Options{LostAndFound: true})
	check()
	kill(t, c, "classic.dead") // a target has no default of its own: the letter is discarded
	eventually(t, "it is gone", func() bool { return deaths(c, "classic.dead")[deadletter.NoExchange] == 1 })
	setMetadata(t, c, declare.VHostChange{DefaultDeadLetter: new("")})
	offer(t, c, "classic", "last")
	kill(t, c, "classic")
	eventually(t, "it is discarded", func() bool { return deaths(c, "classic")[deadletter.NoExchange] == 1 })
}

// A target that cannot be made is none: its letters are in the lost and found.
func TestADefaultTargetThatCannotBeMade(t *testing.T) {
	c := startWith(t, newDisk(), Options{LostAndFound: true})
	setMetadata(t, c, declare.VHostChange{DefaultDeadLetter: new("%q" + strings.Repeat("d", 250))})
	for _, kind := range []string{"classic", "quorum"} {
		mustDeclare(t, c, kind, with("x-queue-type", kind))
		offer(t, c, kind, kind)
		kill(t, c, message.QueueName(kind))
	}
	eventually(t, "both are in the lost and found", func() bool { return len(lettersIn(t, c, LostAndFound)) == 2 })
	for body, h := range lettersIn(t, c, LostAndFound) {
		if h.Lost != deadletter.NoRoute {
			t.Errorf("%s is lost because of %s", body, h.Lost)
		}
	}
}

// A node dies while the queue for its dead letters is being made. The letters are there afterwards, and go on.
func TestACrashWhileAQueueForDeadLettersIsMade(t *testing.T) {
	for _, point := range Failpoints {
		for _, kind := range []string{"classic", "quorum"} {
			t.Run(point+" "+kind, func(t *testing.T) {
				d := newDisk()
				var armed atomic.Bool
				var crashed atomic.Pointer[disk]
				c := start(t, d, func(name string) {
					if name == point && armed.CompareAndSwap(true, false) {
						crashed.Store(d.crash())
					}
				})
				mustDeclare(t, c, "q", with("x-queue-type", kind))
				setMetadata(t, c, declare.VHostChange{DefaultDeadLetter: new("%q.dead")})
				c.b.node.SettleAll()
				offer(t, c, "q", "m")
				armed.Store(true)
				kill(t, c, "q")
				eventually(t, "the node has died", func() bool { return crashed.Load() != nil })
				again := start(t, crashed.Load(), nil)
				eventually(t, "the letter is in its queue or its target", func() bool {
					return max(holds(t, again, "q"), 0)+max(holds(t, again, "q.dead"), 0) == 1
				})
				if holds(t, again, "q") == 1 { // its rejection is not on disk
					kill(t, again, "q")
				}
				eventually(t, "it has come to its target", func() bool { return holds(t, again, "q.dead") == 1 })
			})
		}
	}
}

package partition

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
)

// chooser chooses values, mostly extreme ones.
type chooser struct{ *rand.Rand }

func choosing(seed uint64) chooser { return chooser{rand.New(rand.NewPCG(seed, 1))} }

func (c chooser) uint64() uint64 {
	if c.IntN(4) == 0 {
		return c.Uint64()
	}
	if c.IntN(8) == 0 {
		return math.MaxUint64
	}
	return uint64(extremes[c.IntN(len(extremes))])
}

func (c chooser) int64() int64   { return int64(c.uint64()) }
func (c chooser) uint32() uint32 { return uint32(c.uint64()) }
func (c chooser) id() queue.ID   { return queue.ID(c.uint64()) }
func (c chooser) bool() bool     { return c.IntN(2) == 0 }

// moment chooses a moment or a span, small a number that a command stores in 31 bits.
func (c chooser) moment() int64 { return min(max(c.int64(), 0), moment.Last) }
func (c chooser) small() int    { return int(c.uint64() & math.MaxInt32) }

func (c chooser) float() float64 {
	all := []float64{0, 1, 2, math.Inf(1), math.Inf(-1), 1e300, 5e-324, math.MaxFloat64, math.Copysign(0, -1), -1}
	return all[c.IntN(len(all))]
}

func (c chooser) text() string {
	all := []string{"", "q", strings.Repeat("x", 255), strings.Repeat("é", 127), strings.Repeat("y", 300), "\x00", "\xff"}
	return all[c.IntN(len(all))]
}

func (c chooser) bytes() []byte { return append([]byte{}, c.text()...) }

func (c chooser) record() []byte {
	short := func() []byte { s := c.bytes(); return s[:min(len(s), 255)] }
	e := message.Envelope{
		Serial: message.Serial(c.uint64()), Exchange: short(), Key: short(), BCC: bytes.Repeat([]byte{1, 'k'}, []int{0, 1, 1000, 32767}[c.IntN(4)]), Properties: []byte{0, 0},
		BodySize: []int{0, 1, 255, 256, 70_000}[c.IntN(5)], Persistent: c.bool(), HasPriority: c.bool(), Priority: uint8(c.uint64()),
	}
	r := make([]byte, e.Size())
	e.Put(r)
	message.Record(r).Seal() // as all records that are read back
	return r
}

// targets chooses a plan, and the targets that must be read.
func (c chooser) targets() (p plan, list []target) {
	for range c.IntN(4) {
		t := target{0, c.uint64()}
		p.targets = append(p.targets, &Queue{Incarnation: t.queue})
		list = append(list, t)
	}
	for range c.IntN(4) {
		t := target{1 + c.uint64()>>1, c.uint64()}
		p.remote = append(p.remote, t)
		list = append(list, t)
	}
	return p, list
}

func (c chooser) note() *deadletter.Note {
	if c.bool() {
		return nil
	}
	n := deadletter.Note{Cause: deadletter.Cause{ConsumerTag: c.text(), User: c.text(), Error: c.text(), Detail: c.text(), DeliveryCount: c.uint32()}}
	if n.HasKey = c.bool(); n.HasKey {
		n.Key = c.text()
	}
	if c.bool() {
		n.Annotations = c.text()
	}
	return &n
}

func (c chooser) refusals() (list outbox.Refusals) {
	for range c.IntN(4) {
		list = append(list, outbox.Refusal{Number: c.uint64(), Why: outbox.Answer(c.uint64())})
	}
	return list
}

func (c chooser) settings() (queue.Settings, DeadLetter) {
	s := queue.Settings{
		TTL: c.int64(), Expires: c.int64(), MaxLength: c.int64(), MaxBytes: c.int64(), DeliveryLimit: c.int64(), ConsumerTimeout: c.int64(), DeadLetter: c.bool(), AtLeastOnce: c.bool(), CountNack: c.bool(), LostAndFound: c.bool(),
		Overflow: queue.Overflow(c.IntN(int(queue.RejectPublishDLX) + 1)),
		Retry:    queue.Retry{Type: queue.RetryType(c.IntN(int(queue.RetryReturned) + 1)), Min: c.moment(), Max: c.moment(), Multiplier: c.float(), Jitter: c.float()},
	}
	if c.bool() {
		s.Breaker = queue.Breaker{Deaths: 1 + c.moment()>>1, Percent: 1 + c.Int64N(100), Window: 1 + c.Int64N(queue.MostWindow)}
	}
	if c.bool() {
		s.Rules = deadletter.Rules{Profile: deadletter.ApsaraMQ, ExpireDead: c.bool(), ResetCounts: c.bool(), MaxHops: c.moment(), Retention: c.moment(), LimitReason: c.text()}
	}
	return s, DeadLetter{Exchange: c.text(), Key: c.text(), HasKey: c.bool()}
}

func (c chooser) config() queue.Config {
	return queue.Config{Type: queue.Quorum, Durable: true, MaxPriority: -1, Strict: c.bool(), SingleActive: c.bool()}
}

// bare writes and reads operations that have only a queue or another number.
func bare(code byte) func(chooser, *commandWriter) func(*commandReader, byte) (any, any) {
	return func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) {
		q := c.uint64()
		w.op(code, q)
		return func(r *commandReader, _ byte) (any, any) { return r.uint(), q }
	}
}

// whole writes and reads operations on a queue.
func whole(choose func(chooser) operation) func(chooser, *commandWriter) func(*commandReader, byte) (any, any) {
	return func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) {
		q, o := c.uint64(), choose(c)
		o.write(w, q)
		return func(r *commandReader, code byte) (any, any) { return []any{r.uint(), r.operation(code)}, []any{q, o} }
	}
}

// roundTrips has, for each operation of a command, a function that writes a random one. It returns a function that
// reads it, which returns what was read and what was written.
var roundTrips = map[byte]func(chooser, *commandWriter) func(*commandReader, byte) (got, want any){
	cmdDelete:       whole(func(chooser) operation { return remove{} }),
	cmdPurge:        whole(func(chooser) operation { return &purge{} }),
	cmdTick:         whole(func(chooser) operation { return tick{} }),
	cmdTouch:        whole(func(chooser) operation { return touch{} }),
	cmdCloseBreaker: whole(func(chooser) operation { return closeBreaker{} }),
	cmdGone:         bare(cmdGone), cmdClose: bare(cmdClose),
	cmdCreate: func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) {
		inc, o := c.uint64(), create{vhost: message.VHost(c.text()), name: c.text(), config: c.config()}
		o.settings, o.dead = c.settings()
		o.write(w, inc)
		return func(r *commandReader, _ byte) (any, any) { return []any{r.uint(), r.create()}, []any{inc, o} }
	},
	cmdConfigure: whole(func(c chooser) operation {
		settings, dead := c.settings()
		return configure{settings, dead}
	}),
	cmdPublish: func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) { return publishing(c, w, 0) },
	cmdDelayed: func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) {
		return publishing(c, w, max(c.moment(), 1))
	},
	cmdAck: func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) {
		q, want := c.uint64(), settlement{kind: Ack, consumer: c.uint64(), first: c.id(), count: []uint64{1, 2, 255, maxRun}[c.IntN(4)]}
		for k := range want.count {
			w.ack(q, want.consumer, want.first+queue.ID(k))
		}
		return func(r *commandReader, code byte) (any, any) {
			return []any{r.uint(), r.settlement(code)}, []any{q, want}
		}
	},
	cmdReject: func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) {
		q, want := c.uint64(), settlement{kind: Reject, consumer: c.uint64(), first: c.id(), count: 1, failed: c.bool(), note: c.note()}
		w.reject(q, want.consumer, want.first, want.failed, want.note)
		return func(r *commandReader, code byte) (any, any) {
			return []any{r.uint(), r.settlement(code)}, []any{q, want}
		}
	},
	cmdReturn: func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) {
		q, want := c.uint64(), settlement{kind: Return, consumer: c.uint64(), first: c.id(), count: 1, how: queue.ReturnKind(c.IntN(int(queue.ReturnFailed) + 1)), note: c.note(), wait: max(0, c.moment())}
		w.giveBack(q, want.consumer, want.first, want.how, want.note, want.wait)
		return func(r *commandReader, code byte) (any, any) {
			return []any{r.uint(), r.settlement(code)}, []any{q, want}
		}
	},
	cmdAttach: whole(func(c chooser) operation {
		return attach{c.uint64(), c.bool(), c.bool(), c.bool(), c.int64(), c.small(), c.moment(), c.small(), c.text()}
	}),
	cmdDetach: whole(func(c chooser) operation { return detach{c.uint64()} }),
	cmdCredit: whole(func(c chooser) operation { return credit{c.uint64(), c.small()} }),
	cmdFlow:   whole(func(c chooser) operation { return flow{c.uint64(), c.int64(), c.bool()} }),
	cmdGet:    whole(func(c chooser) operation { return get{c.uint64(), c.bool()} }),
	cmdDead: func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) {
		q, atLeastOnce, history := c.uint64(), c.bool(), c.bytes()
		p, list := c.targets()
		p.outcome = deadletter.Outcome(c.IntN(int(deadletter.Outcomes)))
		var ids []queue.ID
		var deaths []queue.Death
		for range c.IntN(4) {
			id := c.id()
			ids, deaths = append(ids, id), append(deaths, queue.Death{ID: id})
		}
		w.dead(q, &p, atLeastOnce, history, deaths)
		return func(r *commandReader, _ byte) (any, any) {
			inc := r.uint()
			least, outcome, h := r.dead()
			targets := append([]target(nil), r.list()...)
			var read []queue.ID
			for range r.count(1) {
				read = append(read, r.id())
			}
			return []any{inc, least, outcome, string(h), targets, read}, []any{q, atLeastOnce, p.outcome, string(history), list, ids}
		}
	},
	cmdTake: func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) {
		q, id, history := c.uint64(), c.id(), c.bytes()
		p, list := c.targets()
		w.take(q, id, history, &p)
		return func(r *commandReader, _ byte) (any, any) {
			inc := r.uint()
			entry, h := r.take()
			return []any{inc, entry, string(h), append([]target(nil), r.list()...)}, []any{q, id, string(history), list}
		}
	},
	cmdOutIn: func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) {
		from, heard, first := c.uint64(), c.uint64(), c.uint64()
		var all []incoming
		for i := range c.IntN(5) {
			in := incoming{target: c.uint64(), flags: outbox.Flags(c.uint64()) & outbox.AllFlags, failed: c.uint32(), history: c.bytes(), record: c.record()}
			if i > 0 && c.bool() {
				in.sameHistory, in.history = true, all[i-1].history
			}
			if i > 0 && c.bool() {
				in.sameRecord, in.record = true, all[i-1].record
			}
			all = append(all, in)
		}
		w.outIn(from, heard, first, len(all))
		for i := range all {
			w.sent(&all[i])
		}
		return func(r *commandReader, _ byte) (any, any) {
			a, b, number, n := r.outIn()
			var read []incoming
			for range n {
				in, at := r.sent()
				in.history, in.record = bytes.Clone(in.history), bytes.Clone(r.all[at:at+len(in.record)])
				read = append(read, in)
			}
			return []any{a, b, number, read}, []any{from, heard, first, all}
		}
	},
	cmdOutAck: func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) {
		to, upTo, refused := c.uint64(), c.uint64(), c.refusals()
		w.outAck(to, upTo, refused)
		return func(r *commandReader, _ byte) (any, any) {
			log, up, list := r.outAck()
			return []any{log, up, list}, []any{to, upTo, refused}
		}
	},
	cmdReroute:  rerouting(cmdReroute),
	cmdRelocate: rerouting(cmdRelocate),
	cmdAside: func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) {
		q, number, id := c.uint64(), c.uint64(), c.id()
		w.aside(q, number, id)
		return func(r *commandReader, _ byte) (any, any) {
			inc := r.uint()
			by, entry := r.aside()
			return []any{inc, by, entry}, []any{q, number, id}
		}
	},
	cmdAsideSent: func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) {
		to, number := c.uint64(), c.uint64()
		w.asideSent(to, number)
		return func(r *commandReader, _ byte) (any, any) {
			log, n := r.asideSent()
			return []any{log, n}, []any{to, number}
		}
	},
	cmdQuit: func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) {
		return quitting(c, w, w.quit)
	},
	cmdForget: func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) {
		want := []uint64{c.uint64(), c.uint64()}
		w.forget(want)
		return func(r *commandReader, _ byte) (any, any) { return r.jobs(), want }
	},
	cmdLeave: func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) {
		number, queues := c.uint64(), c.uint64()
		rest := quitting(c, w, func(consumers int) { w.leave(number, queues, consumers) })
		return func(r *commandReader, code byte) (any, any) {
			a, b := r.uint(), r.uint()
			got, want := rest(r, code)
			return []any{a, b, got}, []any{number, queues, want}
		}
	},
}

func quitting(c chooser, w *commandWriter, begin func(consumers int)) func(*commandReader, byte) (any, any) {
	var seats, returns [][]uint64
	for range c.IntN(4) {
		seats = append(seats, []uint64{c.uint64(), c.uint64()})
	}
	for range c.IntN(4) {
		returns = append(returns, []uint64{c.uint64(), c.uint64(), c.uint64()})
	}
	begin(len(seats))
	for _, s := range seats {
		w.seat(s[0], s[1])
	}
	w.returns(len(returns))
	for _, d := range returns {
		w.delivery(d[0], d[1], queue.ID(d[2]))
	}
	return func(r *commandReader, _ byte) (any, any) {
		var gotSeats, gotReturns [][]uint64
		for range r.count(seatBytes) {
			q, by := r.seat()
			gotSeats = append(gotSeats, []uint64{q, by})
		}
		for range r.count(deliveryBytes) {
			q, by, id := r.delivery()
			gotReturns = append(gotReturns, []uint64{q, by, uint64(id)})
		}
		return []any{gotSeats, gotReturns}, []any{seats, returns}
	}
}

func publishing(c chooser, w *commandWriter, delay int64) func(*commandReader, byte) (any, any) {
	want := publication{ttl: c.moment() - 1, delay: delay, priority: c.small() - 1, record: c.record()}
	w.publish(want.ttl, want.priority, want.delay, want.record)
	return func(r *commandReader, code byte) (any, any) {
		got := r.publication(code)
		got.at = 0
		return got, want
	}
}

func rerouting(code byte) func(chooser, *commandWriter) func(*commandReader, byte) (any, any) {
	return func(c chooser, w *commandWriter) func(*commandReader, byte) (any, any) {
		to, number, size, priority := c.uint64(), c.uint64(), c.uint32(), c.small()-1
		p, list := c.targets()
		w.reroute(code, to, number, size, priority, &p)
		return func(r *commandReader, _ byte) (any, any) {
			a, b, s, level := r.reroute()
			return []any{a, b, s, level, append([]target(nil), r.list()...)}, []any{to, number, size, priority, list}
		}
	}
}

// Every operation of a command has a round trip here, so that a new one gets its own.
func TestEveryOperationOfACommandHasARoundTrip(t *testing.T) {
	for code := byte(1); code < cmdEnd; code++ {
		if roundTrips[code] == nil {
			t.Errorf("operation %d has none", code)
		}
	}
	if len(roundTrips) != cmdEnd-1 {
		t.Errorf("%d round trips of %d operations", len(roundTrips), cmdEnd-1)
	}
}

// FuzzOperationsAreReadBackEqual: everything that is written into one command, in any order, is read back as written,
// to its end.
func FuzzOperationsAreReadBackEqual(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		c := choosing(seed)
		var w commandWriter
		origin, number, now := c.uint64(), c.uint64(), c.moment()
		w.begin(origin, now)
		var codes []byte
		var readers []func(*commandReader, byte) (any, any)
		for _, i := range c.Perm(cmdEnd - 1) {
			code := byte(1 + i)
			codes = append(codes, code)
			readers = append(readers, roundTrips[code](c, &w))
			w.endAcks()
		}
		r := &commandReader{}
		if a, b, at, ok := r.head(w.numbered(number)); !ok || a != origin || b != number || at != now {
			t.Fatalf("the head is read as %d %d %d, want %d %d %d", a, b, at, origin, number, now)
		}
		for i, read := range readers {
			code := codes[i]
			if got := r.byte(); got != code {
				t.Fatalf("behind operation %v stands %d, want %d", codes[:i], got, code)
			}
			got, want := read(r, code)
			equal(t, code, r, got, want)
		}
		if r.more() {
			t.Fatal("something is left")
		}
	})
}

// Outcomes in a row that say the same have their note once in a command, and are read back with it.
func TestACommandHasANoteOnce(t *testing.T) {
	for seed := range uint64(200) {
		c := choosing(seed)
		notes := []*deadletter.Note{nil, {Annotations: strings.Repeat("a", 16<<10)}, {Cause: deadletter.Cause{Error: "it failed"}}, c.note()}
		var w commandWriter
		w.begin(1, 1) // another command has nothing to do with this one
		w.reject(1, 1, 1, false, notes[1])
		w.begin(1, 1)
		var want []settlement
		changes, last := 0, (*deadletter.Note)(nil)
		for range 100 {
			note := notes[c.IntN(len(notes))]
			for range 1 + c.IntN(10) {
				s := settlement{kind: Reject, consumer: c.uint64(), first: c.id(), count: 1, failed: c.bool(), note: note}
				if c.bool() {
					s.kind, s.failed, s.how, s.wait = Return, false, queue.ReturnReleased, max(0, c.moment())
				}
				if note != nil {
					own := *note // those of one frame may each be a copy
					s.note = &own
				}
				want = append(want, s)
				if s.kind == Reject {
					w.reject(1, s.consumer, s.first, s.failed, s.note)
				} else {
					w.giveBack(1, s.consumer, s.first, s.how, s.note, s.wait)
				}
			}
			if note != nil && note != last {
				changes, last = changes+1, note
			}
		}
		data := w.numbered(1)
		if most := len(want)*64 + changes*(17<<10); len(data) > most {
			t.Errorf("seed %d: %d outcomes with %d notes take %d bytes, want %d at most", seed, len(want), changes, len(data), most)
		}
		r := &commandReader{note: notes[1]}
		r.head(data)
		for i, s := range want {
			code := r.byte()
			r.uint()
			if got := r.settlement(code); r.bad || !reflect.DeepEqual(got, s) {
				t.Fatalf("seed %d: outcome %d is read as %s, want %s", seed, i, short(got), short(s))
			}
		}
		if r.more() {
			t.Fatalf("seed %d: something is left", seed)
		}
	}
}

// A command that names a note before it has one is refused.
func TestANoteAgainNeedsOneBefore(t *testing.T) {
	note := &deadletter.Note{Annotations: "a"}
	var w commandWriter
	w.begin(1, 1)
	w.noted = note.Append(nil)
	w.reject(1, 1, 2, true, note)
	r := &commandReader{}
	r.head(w.numbered(1))
	for r.more() {
		code := r.byte()
		r.uint()
		r.settlement(code)
	}
	if !r.bad {
		t.Error("it is read")
	}
}

func equal(t *testing.T, code byte, r *commandReader, got, want any) {
	t.Helper()
	if r.bad || !reflect.DeepEqual(got, want) {
		t.Fatalf("operation %d: wrote %s, read %s, bad %v", code, short(want), short(got), r.bad)
	}
}

func short(v any) string { return fmt.Sprintf("%.600v", v) }

// Every operation that a salvage does not repeat is skipped to its end.
func TestASalvagePassesOverWholeOperations(t *testing.T) {
	redone := map[byte]bool{cmdPublish: true, cmdDelayed: true, cmdOutIn: true, cmdCreate: true}
	for seed := range uint64(50) {
		for code := byte(1); code < cmdEnd; code++ {
			if redone[code] {
				continue
			}
			var w commandWriter
			w.begin(1, 1)
			roundTrips[code](choosing(seed), &w)
			w.endAcks()
			r := &commandReader{}
			r.head(w.numbered(1))
			if got := r.byte(); got != code {
				t.Fatalf("operation %d is written as %d", code, got)
			}
			if r.skip(code); r.bad || r.more() {
				t.Fatalf("operation %d: bad %v, %d of %d bytes read", code, r.bad, r.at, len(r.all))
			}
		}
	}
}

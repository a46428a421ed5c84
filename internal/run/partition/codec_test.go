package partition

import (
	"bytes"
	"math"
	"reflect"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/cluster"
)

// numbersOf are extreme values for a field of a command.
var extremes = []int64{0, 1, -1, 255, 256, 1<<31 - 1, 1 << 31, -1 << 31, -1<<31 - 1, 1<<32 - 1, 1 << 32, 1 << 53, 1 << 62, math.MaxInt64 - 1, math.MaxInt64, math.MinInt64}

// A consumer may have any priority that fits its argument (BR-9.4): no replica may die of it.
func TestAConsumerOfAnyPriorityIsAttached(t *testing.T) {
	for _, v := range extremes {
		n, fatal := follower(t)
		g := n.groups[0].group
		var w commandWriter
		w.begin(7, 1000)
		w.create(&Queue{Incarnation: 1, VHost: "/", Name: "q", wanted: wanted{queue.Unlimited(), DeadLetter{}}})
		w.attach(1, &queue.Consumer{Number: 5, Tag: "c", Priority: v, Prefetch: math.MaxInt, Timeout: v}, math.MaxInt)
		g.Apply([]cluster.Entry{{Index: 1, Term: 1, Data: w.numbered(1)}})
		if *fatal != nil || g.consumers[5] == nil || g.consumers[5].c.Priority != v {
			t.Errorf("priority %d: %v", v, *fatal)
			continue
		}
		other, _ := follower(t)
		state, err := g.Snapshot()
		if err == nil {
			err = other.groups[0].group.Restore(state, 0)
		}
		if err != nil || other.groups[0].group.consumers[5].c.Priority != v {
			t.Errorf("priority %d is not in the snapshot: %v", v, err)
		}
	}
}

// What is written into a command is read back equal. The writer makes values fit that no command can hold; only the
// writer can.
func FuzzCommandsAreReadBackEqual(f *testing.F) {
	for i, v := range extremes {
		f.Add(v, extremes[len(extremes)-1-i], uint64(v), "tag", []byte("x"), math.Float64frombits(uint64(v)), byte(i))
	}
	f.Add(int64(1), int64(2), uint64(math.MaxUint64), "", []byte{}, math.NaN(), byte(255))
	f.Fuzz(func(t *testing.T, a, b int64, u uint64, text string, data []byte, x float64, flags byte) {
		var w commandWriter
		read := func() *commandReader {
			r := &commandReader{}
			if _, _, _, ok := r.head(w.numbered(1)); !ok {
				t.Fatal("the head is not read")
			}
			return r
		}
		done := func(what string, r *commandReader, got, want any) {
			if r.bad || r.more() || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: wrote %+v, read %+v, bad %v, more %v", what, want, got, r.bad, r.more())
			}
		}

		w.begin(u, max(a, 0))
		wrote := attach{number: u, noAck: flags&1 != 0, exclusive: flags&2 != 0, priority: a, prefetch: int(min(max(b, 0), math.MaxInt32)), timeout: max(b, 0), credit: int(u % math.MaxInt32), tag: text}
		wrote.write(&w, 1)
		r := read()
		if code, q := r.byte(), r.uint(); code != cmdAttach || q != 1 {
			t.Errorf("operation %d on queue %d", code, q)
		}
		done("attach", r, r.attach(), wrote)

		w.begin(u, max(a, 0))
		e := message.Envelope{Serial: message.Serial(u), Key: []byte(text[:min(len(text), 255)]), Properties: []byte{0, 0}, BodySize: len(data)}
		record := make([]byte, e.Size())
		copy(e.Put(record), data)
		message.Record(record).Seal()
		pub := publication{ttl: min(max(a, -1), moment.Last), priority: int(int8(flags)), delay: min(max(b, 0), moment.Last), record: record}
		pub.priority = max(pub.priority, -1)
		w.publish(pub.ttl, pub.priority, pub.delay, record)
		r = read()
		got := r.publication(r.byte())
		done("publish", r, publication{ttl: got.ttl, priority: got.priority, delay: got.delay, record: got.record}, pub)
		if !bytes.Equal(got.record, record) {
			t.Error("the record is another")
		}

		w.begin(u, max(a, 0))
		s := queue.Settings{
			TTL: a, Expires: b, MaxLength: -a, MaxBytes: -b, DeliveryLimit: a ^ b, ConsumerTimeout: b, DeadLetter: flags&4 != 0, AtLeastOnce: flags&8 != 0, CountNack: flags&16 != 0,
			Overflow: queue.Overflow(flags>>4) % (queue.RejectPublishDLX + 1),
			Retry:    queue.Retry{Type: queue.RetryType(flags>>6) % (queue.RetryReturned + 1), Min: max(a, 0), Max: max(b, 0), Multiplier: x, Jitter: 1 / x},
			Rules:    deadletter.Rules{Profile: deadletter.ApsaraMQ, ExpireDead: flags&1 != 0, ResetCounts: flags&2 != 0, MaxHops: max(a, 0), Retention: max(b, 0), LimitReason: text},
		}
		d := DeadLetter{Exchange: text, Key: text, HasKey: flags&1 != 0}
		w.settings(&s, &d)
		w.config(queue.Config{Strict: flags&1 != 0, SingleActive: flags&2 != 0})
		r = read()
		gotS, gotD := r.settings()
		config := r.config()
		if math.Float64bits(gotS.Retry.Multiplier) != math.Float64bits(x) || config.Strict != (flags&1 != 0) || config.SingleActive != (flags&2 != 0) {
			t.Errorf("%+v %+v", gotS, config)
		}
		gotS.Retry.Multiplier, s.Retry.Multiplier, gotS.Retry.Jitter, s.Retry.Jitter = 0, 0, 0, 0 // a NaN does not equal itself
		done("settings", r, []any{gotS, gotD}, []any{s, d})

		// A reader accepts what is written, whatever the fields are.
		w.begin(u, max(a, 0))
		w.publish(a, int(int32(b)), b, record)
		r = read()
		if got := r.publication(r.byte()); r.bad || r.more() {
			t.Errorf("a publish with TTL %d, priority %d and delay %d cannot be read: %+v", a, b, b, got)
		}
		w.begin(u, max(a, 0))
		w.attach(1, &queue.Consumer{Number: u, Priority: a, Prefetch: int(b), Timeout: b, Tag: text}, int(a))
		s.Retry.Min, s.Retry.Max, s.Rules.MaxHops, s.Rules.Retention = a, b, a, b
		w.settings(&s, &d)
		r = read()
		if code, q := r.byte(), r.uint(); code != cmdAttach || q != 1 {
			t.Errorf("operation %d on queue %d", code, q)
		}
		_ = r.attach()
		if _, _ = r.settings(); r.bad || r.more() {
			t.Errorf("a consumer and settings of %d and %d cannot be read", a, b)
		}
	})
}

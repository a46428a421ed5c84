package deadletter

import (
	"bytes"
	"math"
	"reflect"
	"testing"

	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/wire/amqp091"
)

// A client may send any time along.
func TestTheTimeOfACarriedDeathIsAMoment(t *testing.T) {
	for _, seconds := range []uint64{0, 1, 1_750_000_000, 1 << 53, 18446744074, 1 << 62, 1 << 63, math.MaxUint64} {
		headers := amqp091.AppendTable(nil, amqp091.Table{{Key: "x-death", Value: amqp091.Array{amqp091.Table{
			{Key: "queue", Value: "q"}, {Key: "reason", Value: "rejected"}, {Key: "time", Value: amqp091.Timestamp(seconds)},
			{Key: "count", Value: int64(math.MaxInt64)},
		}}}})
		h, ok := Carried(headers[4:])
		if !ok || len(h.Deaths) != 1 {
			t.Fatalf("%d: no history", seconds)
		}
		d := &h.Deaths[0]
		if d.First < 0 || d.Last != d.First || d.First > moment.Last || seconds <= 1<<53 && d.First != int64(seconds)*1000 {
			t.Errorf("%d seconds: first %d, last %d", seconds, d.First, d.Last)
		}
		if back, err := Parse(h.Append(nil)); err != nil || !bytes.Equal(back.Append(nil), h.Append(nil)) || back.Deaths[0].First != d.First {
			t.Errorf("%d seconds: %+v is read back as %+v, %v", seconds, h, back, err)
		}
	}
}

// Whatever numbers a history has, it is read back equal.
func FuzzHistoryIsReadBackEqual(f *testing.F) {
	f.Add(uint64(1), int64(0), int64(0), int64(-1), byte(Rejected), "q", "k", true)
	f.Add(uint64(math.MaxUint64), moment.Last, moment.Last, int64(math.MaxInt64), byte(Expired), "", "", false)
	f.Add(uint64(0), int64(math.MinInt64), int64(math.MaxInt64), int64(math.MaxInt64-1), byte(MaxLen), "q", "\xff", false)
	f.Fuzz(func(t *testing.T, count uint64, first, last, expiration int64, reason byte, queue, key string, ours bool) {
		h := History{KeysReplaced: ours, StripCC: !ours, Delayed: ours, Exchange: key, Keys: []string{key}, LastExchange: queue, ReplayedFrom: key}
		h.Cause = Cause{ConsumerTag: queue, Connection: key, User: queue, Error: key, Product: key, Detail: queue, DeliveryCount: uint32(count)}
		d := Death{Reason: Reason(reason), Count: count, First: first, Last: last, Expiration: max(-1, expiration), Queue: queue, Exchange: key, Keys: []string{key, queue}}
		if !d.Reason.Valid() {
			d.Reason = Rejected
		}
		h.Deaths = []Death{d, d}
		h.First = 1
		if !ours {
			h.Marks = Marks{Job: count, Sent: count != 0, Replays: count / 2, Earlier: []Death{d}}
		}
		back, err := Parse(h.Append(nil))
		want := d.Expiration
		if want == math.MaxInt64 {
			want = moment.Last
			d.Expiration, h.Deaths[0].Expiration, h.Deaths[1].Expiration = want, want, want
			if !ours {
				h.Earlier[0].Expiration = want
			}
		}
		if err != nil || !reflect.DeepEqual(back, h) {
			t.Errorf("%+v is read back as %+v, %v", h, back, err)
		}
		if HeadDelayed(h.Append(nil)) != ours || StoredKeepsTTL(h.Append(nil)) {
			t.Errorf("%+v: that it has waited and died is not told by its stored form", h)
		}
		h.Deaths, h.First, h.ReplayedFrom, h.Marks = nil, 0, "", Marks{}
		if StoredKeepsTTL(h.Append(nil)) != ours || !h.KeepsTTL() {
			t.Errorf("%+v has not died: its TTL is its own", h)
		}
	})
}

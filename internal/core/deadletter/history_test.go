package deadletter

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// Record against the plainest reading of DL-7.2 and DL-7.5: the list of all
// deaths there ever were, from which the history is worked out anew each time.
func TestRecordAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []Event
		var h History
		for range rapid.IntRange(1, 30).Draw(t, "deaths") {
			e := Event{
				Queue:  rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "queue"),
				Reason: rapid.SampledFrom(Reasons).Draw(t, "reason"),
				Time:   rapid.Int64Range(0, 1<<45).Draw(t, "time"), Expiration: rapid.Int64Range(-1, 3).Draw(t, "expiration"),
				Exchange: rapid.SampledFrom([]string{"", "x"}).Draw(t, "exchange"), Keys: []string{rapid.String().Draw(t, "key")},
				NextExchange: rapid.String().Draw(t, "next"), NextKeys: []string{"k"}, KeysReplaced: rapid.Bool().Draw(t, "replaced"),
				Cause: anyCause(t),
			}
			all = append(all, e)
			h.Record(&e)
			if diff := cmp.Diff(naive(all), h); diff != "" {
				t.Fatalf("history (-want +got):\n%s", diff)
			}
			again, err := Parse(h.Append(nil))
			if diff := cmp.Diff(h, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
				t.Fatalf("stored and read: %v (-want +got):\n%s", err, diff)
			}
			if h.Total() != uint64(len(all)) {
				t.Fatalf("%d deaths in total, want %d", h.Total(), len(all))
			}
			h = again
		}
	})
}

func naive(all []Event) (h History) {
	same := func(a, b *Event) bool { return a.Queue == b.Queue && a.Reason == b.Reason }
	for i := len(all) - 1; i >= 0; i-- { // the last death of each pair, newest first
		last := &all[i]
		if slices.ContainsFunc(all[i+1:], func(e Event) bool { return same(&e, last) }) {
			continue
		}
		first := slices.IndexFunc(all, func(e Event) bool { return same(&e, last) })
		f := &all[first]
		d := Death{
			Queue: f.Queue, Reason: f.Reason, First: f.Time, Last: last.Time,
			Exchange: f.Exchange, Keys: f.Keys, Expiration: f.Expiration,
		}
		for k := range all {
			if same(&all[k], last) {
				d.Count++
			}
		}
		if first == 0 {
			h.First = len(h.Deaths)
		}
		h.Deaths = append(h.Deaths, d)
	}
	last := &all[len(all)-1]
	h.Exchange, h.Keys, h.KeysReplaced = last.NextExchange, last.NextKeys, last.KeysReplaced
	h.LastExchange, h.Cause = last.Exchange, last.Cause
	return h
}

// Parse never panics, and what it reads can be stored and read again.
func FuzzParse(f *testing.F) {
	h := record(death{"a", Expired, "", []string{"k"}, 5}, death{"b", Rejected, "x", []string{"k", "cc"}, -1})
	h.Cause, h.ReplayedFrom = wholeCause, "dlq"
	f.Add(h.Append(nil))
	f.Add(Noted(h.Append(nil), &Note{Cause: wholeCause, Key: "key", HasKey: true}))
	f.Add(Noted(nil, &Note{Cause: Cause{Error: "error"}}))
	f.Add((&History{}).Append(nil))
	h.Marks = h.Replayed(7)
	f.Add(h.Append(nil))
	h.Marks = h.Moved(300, "dlq")
	h.EditedFrom, h.Draft = "a.1", true
	f.Add(h.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		job := HeadSent(b)
		h, err := Parse(b)
		if err != nil {
			return
		}
		if h.Sent != (job != 0) || h.Sent && h.Job != job {
			t.Fatalf("the head says that job %d sent it: %+v", job, h)
		}
		again, err := Parse(h.Append(nil))
		if diff := cmp.Diff(h, again); err != nil || diff != "" {
			t.Fatalf("stored and read again: %v\n%s", err, diff)
		}
		h.Headers()
		h.ClosesCycle("q")
		h.Record(&Event{Queue: "q", Reason: MaxLen})
	})
}

// Every beginning of a stored history but the whole is refused.
func TestParseTruncated(t *testing.T) {
	h := record(death{"a", Expired, "", []string{"k"}, 5}, death{"b", Rejected, "x", []string{"k", "cc"}, -1})
	b := h.Append(nil)
	for n := range len(b) {
		if _, err := Parse(b[:n]); err == nil {
			t.Errorf("%d bytes of %d are taken for a history", n, len(b))
		}
	}
	if _, err := Parse(append(b, 0)); err == nil {
		t.Error("a byte too many is not noticed")
	}
}

// What a client sends along never panics (DL-7.9).
func FuzzCarried(f *testing.F) {
	f.Add([]byte("\x07x-deathA\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, headers []byte) {
		if h, ok := Carried(headers); ok {
			if _, err := Parse(h.Append(nil)); err != nil {
				t.Fatalf("a carried history cannot be stored: %+v", h)
			}
		}
	})
}

func TestReasons(t *testing.T) {
	for _, r := range Reasons {
		if got, ok := ParseReason(r.String()); !ok || got != r {
			t.Errorf("reason %s is read as %v", r, got)
		}
	}
	if _, ok := ParseReason("unknown"); ok {
		t.Error("there is no reason unknown (DL-1.1)")
	}
}

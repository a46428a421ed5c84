package deadletter

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A history without marks is stored as releases without jobs stored it.
func TestHistoriesWithoutMarksAreStoredAsBefore(t *testing.T) {
	h := record(death{"a", Expired, "", []string{"k"}, 5}, death{"b", Rejected, "x", []string{"k", "cc"}, -1})
	h.Exchange, h.Keys, h.ReplayedFrom = "dlx", []string{"dead"}, "dlq"
	apsara := apsaraRecord(Rules{LimitReason: "too_often"}, death{"a", Nacked, "x", []string{"k"}, 7})
	for _, c := range []struct {
		h    *History
		want string
	}{
		{&History{}, "010000000000000000000000"},
		{h, "010003646c7801046465616401780000000003646c710102010162017802016b02636301ee2e00000201610001016b019e1f0006"},
		{apsara, "010400000178000000000009746f6f5f6f6674656e0001050161017801016b019e1f0008"},
	} {
		want, _ := hex.DecodeString(c.want)
		if got := c.h.Append(nil); !bytes.Equal(got, want) {
			t.Errorf("stored as %x, before as %x", got, want)
		}
	}
}

// The marks of a message through any lives: deaths between replays and moves. They are read back, its headers are those of
// the same lives without marks, and what it was before each replay is kept, newest first, up to the bound.
func TestMarksThroughLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h, plain History // plain has no marks: what clients are shown
		var earlier []Death
		var replays, job uint64
		sent, from, edited, draft, imported := false, "", "", false, false
		var lost Outcome
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"dies", "dies", "replayed", "moved", "edited", "imported"}).Draw(t, "step") {
			case "dies":
				e := Event{
					Queue: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "queue"), Reason: rapid.SampledFrom(Reasons).Draw(t, "reason"),
					Time: rapid.Int64Range(0, 1<<45).Draw(t, "time"), Expiration: -1, Keys: []string{"k"}, NextKeys: []string{"l"},
				}
				h.Record(&e)
				plain.Record(&e)
				sent, lost = false, Routed
				if rapid.Bool().Draw(t, "to lost and found") {
					lost = rapid.SampledFrom([]Outcome{NoExchange, NoRoute, Cycle, TargetRefused, MissingExchange}).Draw(t, "why")
					h.Lose(lost, "lost")
					plain.Exchange, plain.Keys, plain.KeysReplaced = "", []string{"lost"}, true
				}
			case "replayed":
				job = rapid.SampledFrom([]uint64{0, 1, 127, 128, 1 << 63}).Draw(t, "job")
				earlier = append(append([]Death{}, h.Deaths...), earlier...)
				earlier = earlier[:min(len(earlier), maxEarlier)]
				replays++
				sent, from, draft, lost, imported = job != 0, "", false, Routed, false
				h = History{Keys: []string{"k"}, ReplayedFrom: "d", Marks: h.Replayed(job)}
				plain = History{Keys: []string{"k"}, ReplayedFrom: "d"}
			case "moved":
				job = rapid.Uint64Range(1, 300).Draw(t, "job")
				sent, draft = true, false
				from = rapid.SampledFrom([]string{"", "dlq"}).Draw(t, "from")
				h.Marks = h.Moved(job, from)
			case "edited":
				edited, draft = "a.1", rapid.Bool().Draw(t, "draft")
				h.EditedFrom, h.Draft = edited, draft
			case "imported":
				imported, h.Imported = true, true
			}
			want := Marks{Job: job, Sent: sent, Replays: replays, Earlier: earlier, From: from, EditedFrom: edited, Draft: draft, Lost: lost, Imported: imported}
			stored := h.Append(nil)
			back, err := Parse(stored)
			if err != nil || !reflect.DeepEqual(back.Append(nil), stored) {
				t.Fatalf("%+v is read back as %+v, %v", h, back, err)
			}
			if diff := cmp.Diff(want, back.Marks, cmp.Transformer("list", func(m Marks) string { return fmt.Sprintf("%+v", m) })); diff != "" {
				t.Fatalf("marks (-want +got):\n%s", diff)
			}
			shared, own, ok := Divide(stored, nil, nil)
			if !ok || !bytes.Equal(Unite(nil, shared, own), stored) {
				t.Fatalf("%x is not divided and united", stored)
			}
			if got := HeadLost(stored); got != lost {
				t.Fatalf("the head says that it is lost for %s, want %s", got, lost)
			}
			wantSent := uint64(0)
			if sent {
				wantSent = job
			}
			if HeadSent(stored) != wantSent || HeadSent(shared) != wantSent {
				t.Fatalf("sent by %d, by its shared part %d, want %d", HeadSent(stored), HeadSent(shared), wantSent)
			}
			if diff := cmp.Diff(plain.Headers(), back.Headers()); diff != "" {
				t.Fatalf("clients see the marks (-want +got):\n%s", diff)
			}
			h = back
		}
	})
}

// What a job moves differs in times only, before and after: it has one shared part.
func TestMarksAreShared(t *testing.T) {
	var shared [][]byte
	for _, at := range []int64{1, 1 << 40} {
		var h History
		h.Record(&Event{Queue: "q", Reason: Rejected, Time: at, Expiration: -1, Keys: []string{"k"}})
		next := History{Keys: []string{"k"}, ReplayedFrom: "d", Marks: h.Replayed(5)}
		s, own, ok := Divide(next.Append(nil), nil, nil)
		if !ok || len(own) == 0 {
			t.Fatal("not divided")
		}
		shared = append(shared, s)
	}
	if !bytes.Equal(shared[0], shared[1]) {
		t.Errorf("the shared parts are %x and %x", shared[0], shared[1])
	}
}

// A message that a job has moved has no TTL of its own any more, and dies but once alike.
func TestMarksEndTheTTL(t *testing.T) {
	h := History{Delayed: true, Keys: []string{"k"}}
	if !h.KeepsTTL() || !StoredKeepsTTL(h.Append(nil)) {
		t.Error("what has only waited has its TTL")
	}
	h.Marks = h.Moved(1, "")
	if h.KeepsTTL() || StoredKeepsTTL(h.Append(nil)) {
		t.Error("what a job has moved keeps its TTL")
	}
	h.Record(&Event{Queue: "q", Reason: Expired, Time: 1, Expiration: -1})
	if _, _, ok := DiedAlike(nil, h.Append(nil), 2, -1); ok {
		t.Error("a history with marks was taken for a first death")
	}
}

// Marks that no history has are refused.
func TestSenselessMarks(t *testing.T) {
	good := (&History{Marks: Marks{Job: 1, Sent: true}}).Append(nil)
	for what, change := range map[string]func(b []byte){
		"sent without marks": func(b []byte) { b[1] = flagSent },
		"sent by no job":     func(b []byte) { b[2] = 0 },
		"marks of nothing":   func(b []byte) { b[1], b[2] = flagMarks, 0 },
		"too many deaths":    func(b []byte) { b[4] = maxEarlier + 1 },
		"a flag of tomorrow": func(b []byte) { b[1] |= 1 << 6 },
		"tracks of nothing":  func(b []byte) { b[1] |= flagTracked },
	} {
		b := bytes.Clone(good)
		change(b)
		if h, err := Parse(b); err == nil {
			t.Errorf("%s is read as %+v", what, h)
		}
	}
}

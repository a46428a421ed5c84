package deadletter

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

var pointers = regexp.MustCompile(`0x[0-9a-f]+`)

// longHistories are histories with details in all places where one can be.
func longHistories() map[string]History {
	long, longer := strings.Repeat("at line\n", 300), strings.Repeat("in frame\n", 400)
	died := func(cause string) (h History) {
		h.Exchange, h.Keys = "dead", []string{"k"}
		h.Record(&Event{Queue: "q", Reason: Rejected, Time: 5, Expiration: -1, Keys: []string{"k"}, Cause: Cause{
			ConsumerTag: "c", Error: "e", Name: "n", Product: "p", Version: "1", Class: "C", Detail: cause, DeliveryCount: 3,
		}})
		return h
	}
	noted := func(h History, n Note) History {
		h.Note = &n
		return h
	}
	marked := died(long)
	marked.Marks = Marks{Job: 7, Sent: true, Replays: 2, Earlier: []Death{{Queue: "q", Reason: Expired, Count: 1, Expiration: -1}}, From: "f", Imported: true}
	return map[string]History{
		"of the cause":              died(long),
		"of the note":               noted(died(""), Note{Cause: Cause{Name: "n", Detail: long}, Key: "key", HasKey: true}),
		"of a note of a fresh one":  noted(History{}, Note{Cause: Cause{Detail: long}}),
		"of both, the note longer":  noted(died(long), Note{Cause: Cause{Detail: longer}}),
		"of both, the cause longer": noted(died(longer), Note{Cause: Cause{Detail: long, DeliveryCount: 9}}),
		"of both, equal":            noted(died(long), Note{Cause: Cause{Detail: long}}),
		"with marks of a job":       marked,
		"with ApsaraMQ's profile":   {Profile: ApsaraMQ, LimitReason: "r", Cause: Cause{Detail: long}},
	}
}

// A detail that is taken out of a shared part comes back to its place, and what is left without it is a history as before.
func TestADetailIsTakenOutAndPutBack(t *testing.T) {
	mark := []byte("\xffmark")
	for name, h := range longHistories() {
		stored := h.Append(nil)
		shared, own, ok := Divide(stored, nil, nil)
		text, from, to := Detail(shared)
		want := h.Cause.Detail
		if h.Note != nil && len(h.Note.Detail) > len(want) {
			want = h.Note.Detail
		}
		if !ok || string(text) != want || !bytes.Equal(shared[to-len(text):to], text) {
			t.Fatalf("%s: the detail has %d bytes, want %d", name, len(text), len(want))
		}
		if whole, _, _ := Detail(stored); !bytes.Equal(whole, text) {
			t.Errorf("%s: the stored form has another detail than its shared part", name)
		}
		small := TakeDetail(nil, shared, from, to, mark)
		if len(small) > len(shared)-len(text)+len(mark) {
			t.Errorf("%s: %d bytes are left of %d", name, len(small), len(shared))
		}
		if back := PutDetail(nil, small, mark, text); !bytes.Equal(back, shared) {
			t.Errorf("%s: the detail did not come back to its place", name)
		}
		brief := h
		if h.Note == nil || h.Cause.Detail == want {
			brief.Cause.Detail = ""
		} else {
			note := *h.Note
			note.Detail, brief.Note = "", &note
		}
		got, err := Parse(Unite(nil, PutDetail(nil, small, mark, nil), own))
		if shown, want := fmt.Sprintf("%+v %+v", got, got.Note), fmt.Sprintf("%+v %+v", brief, brief.Note); err != nil || pointers.ReplaceAllString(shown, "") != pointers.ReplaceAllString(want, "") {
			t.Errorf("%s: %v: without the detail it is %s, want %s", name, err, shown, want)
		}
		for what, head := range map[string][2]any{
			"sent":    {HeadSent(small), HeadSent(shared)},
			"lost":    {HeadLost(small), HeadLost(shared)},
			"TTL":     {HeadMayKeepTTL(small), HeadMayKeepTTL(shared)},
			"delayed": {HeadDelayed(small), HeadDelayed(shared)},
		} {
			if head[0] != head[1] {
				t.Errorf("%s: %s is %v, was %v", name, what, head[0], head[1])
			}
		}
	}
}

// A note takes the place of the detail of the death before it: a history has one detail at most.
func TestANoteEndsTheDetailBefore(t *testing.T) {
	h := longHistories()["of the cause"]
	got, err := Parse(Noted(h.Append(nil), &Note{Cause: Cause{Detail: "new"}}))
	if err != nil || got.Cause.Detail != "" || got.Cause.Class != "C" || got.Note.Detail != "new" {
		t.Errorf("%v: cause %+v, note %+v", err, got.Cause, got.Note)
	}
}

// FuzzDetail: whatever the bytes are, a detail is found within them and comes back to its place.
func FuzzDetail(f *testing.F) {
	for _, h := range longHistories() {
		f.Add(h.Append(nil))
	}
	f.Add([]byte{1, flagCause})
	f.Fuzz(func(t *testing.T, stored []byte) {
		text, from, to := Detail(stored)
		if len(text) == 0 {
			return
		}
		mark := append([]byte("\xff no text has this"), stored...) // longer than any detail, so none is equal
		if back := PutDetail(nil, TakeDetail(nil, stored, from, to, mark), mark, text); !bytes.Equal(back, stored) {
			t.Fatalf("%x came back as %x", stored, back)
		}
	})
}

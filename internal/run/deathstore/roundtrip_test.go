package deathstore

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/run/bodies"
)

// FuzzHistoriesAreReadBackEqual: the bytes of a history are those that were kept, and those that its parts, which a
// page of the index has, are put together to: whatever the bytes are.
func FuzzHistoriesAreReadBackEqual(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("no history at all"))
	for _, text := range []string{"", "q", strings.Repeat("x", 255), "\xff"} {
		for _, at := range []int64{0, 1, math.MaxUint32, moment.Last} {
			h := deadletter.History{Exchange: text, Keys: []string{text, ""}}
			f.Add(h.Append(nil))
			h.Record(&deadletter.Event{Queue: text, Reason: deadletter.Expired, Time: at, Expiration: at - 1, Exchange: text, Keys: []string{text}, NextExchange: text, NextKeys: []string{text}})
			h.Record(&deadletter.Event{Queue: "other", Reason: deadletter.Rejected, Time: at, Expiration: -1, Cause: deadletter.Cause{User: text}})
			f.Add(h.Append(nil))
		}
	}
	h := deadletter.History{Cause: deadletter.Cause{Detail: strings.Repeat("x", 2*mostDetail)}}
	f.Add(h.Append(nil))
	h.Note = &deadletter.Note{Cause: deadletter.Cause{Class: "C", Detail: strings.Repeat("y", 3*mostDetail)}}
	f.Add(h.Append(nil))
	f.Fuzz(func(t *testing.T, stored []byte) {
		s := bodies.New()
		ref := Keep(s, stored)
		if got := Bytes(s, ref); !bytes.Equal(got, stored) {
			t.Fatalf("kept %x, reads %x", stored, got)
		}
		common, own := Parts(s, ref)
		var shared []byte
		if common != 0 {
			shared = bytes.Clone(Shared(s, common))
		}
		for what, from := range map[string]*bodies.Store{"beside it": s, "in another store": bodies.New()} {
			back := KeepParts(from, shared, bytes.Clone(own))
			if got := Bytes(from, back); !bytes.Equal(got, stored) {
				t.Fatalf("%s: kept %x, its parts come to %x", what, stored, got)
			}
			from.Release(back)
		}
		s.Release(ref)
		if n := s.Held(); n != 0 {
			t.Fatalf("%d allocations are left", n)
		}
	})
}

// FuzzKeepParts: parts that belong to nothing are kept, and read, without a panic.
func FuzzKeepParts(f *testing.F) {
	h := deadletter.History{Exchange: "x", Keys: []string{"k"}}
	h.Record(&deadletter.Event{Queue: "q", Reason: deadletter.Expired, Time: 5, Expiration: -1})
	shared, own, _ := deadletter.Divide(h.Append(nil), nil, nil)
	f.Add(shared, own)
	f.Add(shared, []byte{})
	f.Add([]byte{}, own)
	f.Fuzz(func(t *testing.T, shared, own []byte) {
		s := bodies.New()
		var refs []message.Ref
		for range 3 {
			refs = append(refs, KeepParts(s, shared, own))
		}
		for _, ref := range refs {
			if got := Bytes(s, ref); len(got) > len(shared)+len(own) {
				t.Fatalf("%d bytes of %d", len(got), len(shared)+len(own))
			}
			s.Release(ref)
		}
		if n := s.Held(); n != 0 {
			t.Fatalf("%d allocations are left", n)
		}
	})
}

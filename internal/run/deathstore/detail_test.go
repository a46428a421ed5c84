package deathstore

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/run/bodies"
)

// said is the stored form of a history whose last death has a detail of a few bytes more than n.
func said(i, n int) []byte {
	var h deadletter.History
	h.Record(&deadletter.Event{
		Queue: "orders", Reason: deadletter.Rejected, Time: int64(i), Expiration: -1, Keys: []string{"k"}, NextExchange: "dead", NextKeys: []string{"k"},
		Cause: deadletter.Cause{ConsumerTag: "c", Class: "C", Error: "e", Detail: fmt.Sprint(i, strings.Repeat("x", n))},
	})
	return h.Append(nil)
}

// onDisk is a store with scratch files of 1 MiB.
func onDisk(t *testing.T, fs vfs.FS) (*bodies.Store, *bodyfile.Scratch) {
	t.Helper()
	scratch, err := bodyfile.OpenScratch(fs, "scratch", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = scratch.Close() })
	s := bodies.New()
	s.Attach(bodies.Disk{Scratch: scratch})
	return s, scratch
}

func files(t *testing.T, fs vfs.FS) int {
	t.Helper()
	names, err := fs.List("scratch")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// A long detail takes no memory, whoever has it; it reads equal, and when nobody has it any more its file goes.
func TestLongDetailsLieOnDisk(t *testing.T) {
	fs := vfs.NewMem()
	s, _ := onDisk(t, fs)
	var refs []message.Ref
	var want [][]byte
	const letters, long = 5000, 8 << 10
	for i := range letters {
		b := said(i, long)
		want, refs = append(want, b), append(refs, Keep(s, b))
	}
	if each := s.Memory() / letters; each > 512 {
		t.Errorf("a history takes %d bytes of memory", each)
	}
	for i, ref := range refs {
		if got := Bytes(s, ref); !bytes.Equal(got, want[i]) {
			t.Fatalf("history %d reads otherwise", i)
		}
		shared, own := Parts(s, ref)
		again := KeepParts(s, Shared(s, shared), own)
		if got := Bytes(s, again); !bytes.Equal(got, want[i]) {
			t.Fatalf("history %d reads otherwise from its parts", i)
		}
		s.Release(again)
		h, err := deadletter.Parse(Brief(s, ref))
		if err != nil || h.Cause.Detail != "" || h.Cause.Class != "C" || h.Deaths[0].Last != int64(i) {
			t.Fatalf("history %d, %v: in brief it is %+v", i, err, h)
		}
		if got, want := detail(s, ref), len(fmt.Sprint(i))+long; got != want {
			t.Fatalf("history %d: the detail has %d bytes, want %d", i, got, want)
		}
		if got := Size(s, ref); got < len(want[i]) || got > len(want[i])+64 {
			t.Errorf("history %d has the size %d, want about %d", i, got, len(want[i]))
		}
	}
	if n := files(t, fs); n < letters*long>>20 {
		t.Errorf("%d files, want those of %d details", n, letters)
	}
	for _, ref := range refs {
		s.Release(ref)
	}
	if n := s.Held(); n != 0 {
		t.Errorf("%d allocations are left", n)
	}
	if n := files(t, fs); n > 1 {
		t.Errorf("%d files are left, want the one that is being written", n)
	}
}

// Equal details lie on disk once, also if other parts of the histories differ: a note and the death that it becomes.
func TestEqualDetailsLieOnDiskOnce(t *testing.T) {
	fs := vfs.NewMem()
	s, scratch := onDisk(t, fs)
	detail := strings.Repeat("x", 64<<10)
	note := Keep(s, deadletter.Noted(nil, &deadletter.Note{Cause: deadletter.Cause{Detail: detail}}))
	for i := range 100 {
		var h deadletter.History
		h.Record(&deadletter.Event{Queue: fmt.Sprint("q", i%3), Reason: deadletter.Rejected, Time: int64(i), Expiration: -1, Cause: deadletter.Cause{Detail: detail}})
		Keep(s, h.Append(nil))
	}
	if n := scratch.Current(); n != 1 || s.Memory() > 1<<20 {
		t.Errorf("there are %d files, and %d bytes in memory", n, s.Memory())
	}
	s.Release(note)
}

// Short details, and histories without one, are kept as before: they count nothing and write nothing.
func TestShortDetailsStayInMemory(t *testing.T) {
	s, scratch := onDisk(t, vfs.NewMem())
	for _, n := range []int{0, 1, mostDetail - 10} {
		ref := Keep(s, said(1, n))
		if detail(s, ref) != 0 || !bytes.Equal(Bytes(s, ref), Brief(s, ref)) {
			t.Errorf("a detail of %d bytes is put aside", n)
		}
	}
	if scratch.Current() != 0 {
		t.Error("something was written")
	}
}

// Of a detail that cannot be read back the history says so, and the node is told why; all else of it stays.
func TestALostDetailIsTold(t *testing.T) {
	s, scratch := onDisk(t, vfs.NewMem())
	var told []error
	s.Attach(bodies.Disk{Scratch: scratch, Unread: func(err error) { told = append(told, err) }})
	ref := Keep(s, said(7, 64<<10))
	for i := range 40 { // so that what was written first is not in a buffer
		Keep(s, said(100+i, 64<<10))
	}
	if err := scratch.Drop(1); err != nil {
		t.Fatal(err)
	}
	h, err := deadletter.Parse(Bytes(s, ref))
	if err != nil || h.Cause.Detail != lostDetail || h.Cause.Error != "e" || len(h.Deaths) != 1 {
		t.Errorf("%v: the history is %+v", err, h)
	}
	if len(told) != 1 {
		t.Errorf("the node was told %v", told)
	}
}

// Without a disk that takes them, details stay in memory, and count as they do elsewhere.
func TestDetailsWithoutADisk(t *testing.T) {
	s := bodies.New()
	ref := Keep(s, said(7, 2*mostDetail))
	if !bytes.Equal(Bytes(s, ref), said(7, 2*mostDetail)) || detail(s, ref) != 2*mostDetail+1 {
		t.Errorf("%d bytes are put aside", detail(s, ref))
	}
	s.Release(ref)
	if n := s.Held(); n != 0 {
		t.Errorf("%d allocations are left", n)
	}
}

// A detail that has the form of a mark is a text like any other.
func TestADetailThatLooksLikeAMark(t *testing.T) {
	s := bodies.New()
	long := Keep(s, said(7, 2*mostDetail))
	shared, own := Parts(s, long)
	alike := deadletter.Unite(nil, s.Bytes(shared), own)
	for range 3 {
		if ref := Keep(s, alike); !bytes.Equal(Bytes(s, ref), alike) || detail(s, ref) != 0 {
			t.Fatal("it reads as the detail of another history")
		}
	}
	if ref := Keep(s, said(7, 2*mostDetail)); !bytes.Equal(Bytes(s, ref), said(7, 2*mostDetail)) {
		t.Error("the other history reads otherwise")
	}
}

// Details come and go while others look for equal ones.
func TestKeepDetailsAtOnce(t *testing.T) {
	s, _ := onDisk(t, vfs.NewMem())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 1500 {
				b := said(i%5, 2*mostDetail)
				ref := Keep(s, b)
				if got := Bytes(s, ref); !bytes.Equal(got, b) {
					t.Error("a history reads otherwise")
				}
				s.Release(ref)
			}
		})
	}
	wg.Wait()
	if n := s.Held(); n != 0 {
		t.Errorf("%d allocations are left", n)
	}
}

// A detail that somebody keeps does not keep the file in which it lay among others; it reads equal meanwhile.
func TestDetailsLeaveSparseFiles(t *testing.T) {
	fs := vfs.NewMem()
	s, _ := onDisk(t, fs)
	const letters, long, every = 4000, 8 << 10, 100
	var refs []message.Ref
	for i := range letters {
		refs = append(refs, Keep(s, said(i, long)))
	}
	full := files(t, fs)
	if Compact(s, func() bool { return false }); full < letters*long>>20 || files(t, fs) != full {
		t.Fatalf("%d full files became %d", full, files(t, fs))
	}
	for i, ref := range refs {
		if i%every != 0 {
			s.Release(ref)
		}
	}
	check := func() {
		for i := 0; i < letters; i += every {
			if got := Bytes(s, refs[i]); !bytes.Equal(got, said(i, long)) {
				t.Errorf("history %d reads otherwise", i)
				return
			}
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 10 {
			check()
		}
	})
	wg.Go(func() { // others come and go
		for i := range 200 {
			s.Release(Keep(s, said(letters+i, long)))
		}
	})
	Compact(s, func() bool { return false })
	wg.Wait()
	check()
	if n := files(t, fs); n > 6 { // with what has come meanwhile
		t.Errorf("%d files of 1 MiB have %d details of %d bytes", n, letters/every, long)
	}
	for i := 0; i < letters; i += every {
		s.Release(refs[i])
	}
	if n := s.Held(); n != 0 {
		t.Errorf("%d allocations are left", n)
	}
}

//go:build unix

package cluster

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"bartleby.mq/internal/disk/journal"
)

// nobody is a machine that does nothing.
type nobody struct{ applied int }

func (m *nobody) Apply(e []Entry)                 { m.applied += len(e) }
func (*nobody) Snapshot() ([]byte, error)         { return nil, nil }
func (*nobody) Restore([]byte, journal.Pos) error { return nil }
func (*nobody) Leading(uint64)                    {}
func (*nobody) Following(uint64)                  {}

// cpu is what the process has used so far.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCommit is what one batch of messages costs until it is decided and
// applied, by one voter, beside the same batch in the journal alone. The journal's
// files are recycled, as in a node that runs for long.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{128, 1024} {
		for _, batch := range []int{1, 256} {
			for _, through := range []string{"journal", "raft"} {
				b.Run(fmt.Sprintf("%s/%dB/%d", through, size, batch), func(b *testing.B) {
					benchmarkCommit(b, through == "raft", size, batch)
				})
			}
		}
	}
}

func benchmarkCommit(b *testing.B, raft bool, size, batch int) {
	j, err := journal.Open(journal.Options{Dir: b.TempDir(), SegmentBytes: 8 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	if err := j.Recover(0, func(journal.Pos, []byte) error { return nil }); err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, size*batch)
	run := func() error { return j.Commit(j.Append(payload)) }
	if raft {
		d, err := New(Options{ID: 1, Journal: j})
		if err != nil {
			b.Fatal(err)
		}
		g, err := d.Open(1, &nobody{}, FirstState(1))
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Start(); err != nil {
			b.Fatal(err)
		}
		defer d.Stop()
		run = func() error {
			pos, err := g.Append(payload)
			if err != nil {
				return err
			}
			return d.Commit(pos)
		}
	}
	recycle := func() {
		if s := j.Segments(); len(s) > 2 {
			if err := j.Retire(s[len(s)-1].Number, nil); err != nil {
				b.Fatal(err)
			}
		}
	}
	for range 64 << 20 / len(payload) / 8 { // make the files that will be recycled
		if j.Append(payload); j.Buffered() > 1<<20 {
			if err := j.Commit(j.Append(payload)); err != nil {
				b.Fatal(err)
			}
			recycle()
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu(b)
	n := 0
	for b.Loop() {
		if err := run(); err != nil {
			b.Fatal(err)
		}
		if n++; n%64 == 0 {
			recycle()
		}
	}
	b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/float64(n*batch), "cpu-ns/msg")
}

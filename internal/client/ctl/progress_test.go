package ctl

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

// A line of progress says how much is done, how fast it goes and how long it takes yet, within the columns of the terminal.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	columns := 120
	p := &progressLine{out: &out, width: func() int { return columns }}
	at := time.UnixMilli(0)
	draw := func(after time.Duration, job jobReport) string {
		out.Reset()
		at = at.Add(after)
		job.draw(p, at)
		text, begins := strings.CutPrefix(out.String(), "\r")
		text, ends := strings.CutSuffix(text, "\x1b[K")
		if !begins || !ends || len([]rune(text)) >= columns {
			t.Errorf("%q in %d columns", out.String(), columns)
		}
		return text
	}
	job := jobReport{State: "running", Planned: 1000}
	if got := draw(0, job); got != "[..............................]   0%  0 of 1000" {
		t.Errorf("%q", got)
	}
	job.Moved, job.Refused, job.Outcomes.Acknowledged, job.Outcomes.DiedAgain = 190, 10, 180, 3
	if got := draw(2*time.Second, job); got != "[######........................]  20%  200 of 1000  100/s  9s left  180 acknowledged, 3 died again, 10 refused" {
		t.Errorf("%q", got)
	}
	columns = 40
	if got := draw(time.Second, job); got != " 20%  200 of 1000  67/s  12s left  180…" && got != " 20%  200 of 1000  67/s  13s left  180…" {
		t.Errorf("%q", got)
	}
	columns = 160
	job.CanaryUntil = time.Date(2026, 1, 1, 3, 4, 5, 0, time.Local).UnixMilli()
	if got := draw(time.Second, job); !strings.Contains(got, "It waits for its first letters until 03:04:05, and halts if none is consumed  180 ack") {
		t.Errorf("%q", got)
	}
	for range 3 * progressSamples { // a rate is that of the last seconds
		draw(time.Second, job)
	}
	if job.Moved += 3; !strings.Contains(draw(time.Second, job), "0.2/s") {
		t.Errorf("%q", out.String())
	}
	out.Reset()
	p.clear()
	p.clear()
	if out.String() != "\r\x1b[K" {
		t.Errorf("%q", out.String())
	}
	// A file that somebody imports, of which the size is known, and a stream.
	for all, want := range map[int64]string{100 << 20: " 19%  19 MiB of 100 MiB", 0: "19 MiB"} {
		p := &progressLine{out: &out, width: func() int { return 50 }}
		r := &progressReader{Reader: io.LimitReader(zeros{}, 20<<20), line: p, all: all}
		out.Reset()
		for range 19 {
			p.drawn = time.Time{}
			if _, err := io.ReadFull(r, make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
		}
		if got := out.String(); !strings.Contains(got, "\r"+want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// Names of queues and rules, and reasons, come from anybody: none steers the terminal.
func TestWhatWaitsAndWhoDiscardedSteerNoTerminal(t *testing.T) {
	const evil = "a\x1b[2Jb\nc"
	for _, text := range []string{(&waitingPlace{Queue: evil}).String(), (&discarded{By: evil, Rule: evil, Reason: evil}).String(), from(evil)} {
		if strings.ContainsAny(text, "\x1b\n") {
			t.Errorf("%q", text)
		}
	}
}

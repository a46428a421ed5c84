package ctl

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Bounds of a line of progress.
const (
	progressEvery   = 250 * time.Millisecond // between two drawings of what is told more often
	progressSamples = 20                     // of which a rate is made
	widestBar       = 30                     // characters
	leastForBar     = 60                     // columns of a terminal with a bar
)

// progressLine is a line on a terminal that is drawn again and again: how far something is, how fast, and how long it takes yet. A nil
// one draws nothing. Any number of goroutines may use it.
type progressLine struct {
	out   io.Writer
	width func() int // columns

	mu      sync.Mutex
	samples []progressSample // the last ones
	drawn   time.Time
	shown   bool // there is something to clear
}

type progressSample struct {
	at   time.Time
	done int64
}

// newProgress returns a line of progress, nil where nobody would see it: where the error output is no terminal, or --quiet was given.
func (i *invocation) newProgress() *progressLine {
	f, isFile := i.errs.(*os.File)
	if !isFile || i.quiet || i.silent || os.Getenv("TERM") == "dumb" {
		return nil
	}
	if _, ok := terminalWidth(f); !ok {
		return nil
	}
	return &progressLine{out: f, width: func() int { n, _ := terminalWidth(f); return n }}
}

// draw draws the line: so much is done of all, which is 0 if nobody knows. amount says how much that is, in words; what follows rate and time
// left is more.
func (p *progressLine) draw(now time.Time, done, all int64, amount func(int64) string, more string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.samples) == progressSamples {
		p.samples = p.samples[:copy(p.samples, p.samples[1:])]
	}
	p.samples = append(p.samples, progressSample{now, done})
	p.drawn, p.shown = now, true
	_, _ = fmt.Fprintf(p.out, "\r%s\x1b[K", cutText(p.text(done, all, amount, more), max(10, p.width()-1)))
}

// due says whether so much time has passed since the last drawing that another makes sense.
func (p *progressLine) due(now time.Time) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Sub(p.drawn) >= progressEvery
}

// clear takes the line away.
func (p *progressLine) clear() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
	p.shown = false
}

// text is the line. REQUIRES: p.mu is held.
func (p *progressLine) text(done, all int64, amount func(int64) string, more string) string {
	var parts []string
	if all > 0 {
		part := min(1, float64(done)/float64(all))
		bar := ""
		if width := p.width(); width >= leastForBar {
			size := min(widestBar, width/4)
			full := int(part * float64(size))
			bar = "[" + strings.Repeat("#", full) + strings.Repeat(".", size-full) + "] "
		}
		parts = append(parts, fmt.Sprintf("%s%3d%%  %s of %s", bar, int(100*part), amount(done), amount(all)))
	} else {
		parts = append(parts, amount(done))
	}
	first, last := p.samples[0], p.samples[len(p.samples)-1]
	if span := last.at.Sub(first.at).Seconds(); span > 0 && last.done > first.done {
		rate := float64(last.done-first.done) / span
		text := amount(int64(rate + 0.5))
		if rate < 9.5 {
			text = fmt.Sprintf("%.1f", rate)
		}
		parts = append(parts, text+"/s")
		if left := float64(all-done) / rate; all > done && left < 1e8 {
			parts = append(parts, shortSpan(time.Duration(left*float64(time.Second))+time.Second)+" left")
		}
	}
	if more != "" {
		parts = append(parts, more)
	}
	return strings.Join(parts, "  ")
}

// inBytes is an amount of bytes.
func inBytes(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d B", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	case n < 10<<30:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d GiB", n>>30)
}

// inLetters is an amount of letters.
func inLetters(n int64) string { return fmt.Sprint(n) }

// progressReader draws how much of a file was read.
type progressReader struct {
	io.Reader
	line      *progressLine
	read, all int64
}

// Read reads, and draws now and then.
func (r *progressReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.read += int64(n)
	if now := time.Now(); r.line.due(now) {
		r.line.draw(now, r.read, r.all, inBytes, "")
	}
	return n, err
}

// draw draws how far a job is.
func (j *jobReport) draw(p *progressLine, now time.Time) {
	more := strings.TrimPrefix(j.outcomes(), ", ")
	if note := strings.TrimPrefix(j.note(), ". "); note != "" {
		more = strings.TrimSpace(note + "  " + more)
	}
	p.draw(now, int64(j.Moved)+int64(j.stay())+int64(j.Gone), int64(j.Planned), inLetters, more)
}

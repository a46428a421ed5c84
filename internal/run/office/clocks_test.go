package office

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/run/letters"
)

// twoClocks is an office whose wall clock is wrong by some time, which the clock of its queues is not.
func twoClocks(wrong *atomic.Int64) Options {
	return Options{
		Now:    func() time.Time { return time.Now().Add(time.Duration(wrong.Load())) },
		queues: func() int64 { return time.Now().UnixMilli() },
	}
}

// A job takes the letters that a search with the same filter shows, and what somebody says of a group holds for those that had died by then:
// both go by the clock by which letters died, wherever the wall clock is.
func TestAgesGoByTheClockOfDeaths(t *testing.T) {
	for name, by := range map[string]time.Duration{"ahead": 2 * time.Hour, "behind": -2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			var wrong atomic.Int64
			wrong.Store(int64(by))
			d := openBureauWith(t, vfs.NewMem(), twoClocks(&wrong))
			d.letters("classic", "classic", 3)
			for filter, want := range map[string]int{"newer_than": 3, "older_than": 0} {
				plan, err := d.jobs.Dry(t.Context(), d.c, &Request{VHost: "/", Action: letters.Discard, Queue: "dlq", Filter: map[string][]string{filter: {"1h"}}})
				if err != nil || plan.Count != want {
					t.Errorf("%s=1h: %d letters, %v; want %d", filter, plan.Count, err, want)
				}
			}
			id, _ := letter.ParseGroupID(d.group())
			note, err := d.office.SetNote("/", id, NoteRequest{State: new("resolved")}, Actor{})
			if now := time.Now().UnixMilli(); err != nil || note.At > now || note.At < now-time.Minute.Milliseconds() {
				t.Errorf("a group was called resolved at %d, and its letters died before %d by the clock of queues: %v", note.At, now, err)
			}
		})
	}
}

// A canary waits for its time and not for the wall clock.
func TestACanaryOutlivesAStepBack(t *testing.T) {
	var wrong atomic.Int64
	d := openBureauWith(t, vfs.NewMem(), twoClocks(&wrong))
	d.letters("classic", "classic", 6)
	j := d.start(Request{Action: letters.Replay, Queue: "dlq", How: How{Canary: &Canary{First: 2, WaitMS: 300, Percent: 100}}})
	d.eventually("the first have gone", func() bool { return d.job(j.ID).Moved >= 2 })
	wrong.Store(int64(-2 * time.Hour))
	d.kill("work") // one has an outcome
	d.eventually("the others have gone", func() bool { return d.job(j.ID).Moved == 6 })
}

// A webhook's pause passes, wherever the wall clock goes.
func TestAWebhookOutlivesAStepBack(t *testing.T) {
	var wrong, passed atomic.Int64
	o := twoClocks(&wrong)
	o.queues, o.WebhooksLocal, o.idle = func() int64 { return time.Now().UnixMilli() + passed.Load() }, true, true
	d := &chancery{bureau: openBureauWith(t, vfs.NewMem(), o)}
	d.f, d.hooks, d.rules = d.office, d.office.Webhooks, d.office.Rules
	l := newListener(t)
	l.status.Store(500)
	d.hook("pager", l.URL, "queue.created")
	d.declare("a", "classic")
	d.eventually("it is tried", func() bool { return l.count() >= 1 && d.shown("pager").LastError != "" })
	l.status.Store(200)
	wrong.Store(int64(-2 * time.Hour))
	passed.Store(600_000)
	d.hooks.poke()
	d.eventually("it is told", func() bool { return d.shown("pager").Delivered == 1 })
}

package metrics_test

import (
	"testing"
	"time"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/run/office"
)

// What became of letters is shown by action and outcome, and by job only of jobs that are not over.
func TestJobs(t *testing.T) {
	n := start(t)
	f, err := office.New(office.Options{Broker: n.b})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	n.jobs = f.Jobs
	n.declare(n.link, "dead")
	n.declare(n.link, "work", arg("x-dead-letter-exchange", ""), arg("x-dead-letter-routing-key", "dead"))
	for range 4 {
		n.publish("", "work")
		n.reject("work")
	}
	n.b.CountQueues()
	run := func(how office.How) office.Job {
		t.Helper()
		r := office.Request{Action: letters.Replay, VHost: "/", Queue: "dead", How: how}
		p, err := f.Jobs.Dry(t.Context(), n.link, &r)
		if err != nil {
			t.Fatal(err)
		}
		r.Token, r.Count = p.Token, &p.Count
		j, err := f.Jobs.Start(t.Context(), n.link, &r)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	first := run(office.How{Limit: 3})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if j, _ := f.Jobs.Job(first.ID); j.State == office.Done {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it is not done in 10 s")
		}
	}
	n.reject("work")
	if err := n.link.Take("work", 1, broker.AckRemoves, func(*broker.Shown) (bool, error) { return true, nil }); err != nil {
		t.Fatal(err)
	}
	n.b.CountQueues()
	run(office.How{ScheduleMS: time.Now().Add(time.Hour).UnixMilli()})
	totals, each := n.scrape("/metrics"), n.scrape("/metrics/per-object")
	for _, e := range []exposition{totals, each} {
		n.has(e, "bartleby_jobs", map[string]float64{"state=planned": 1, "state=running": 0, "state=paused": 0, "state=halted": 0, "state=cancelled": 0, "state=done": 1, "state=failed": 0})
		n.has(e, "bartleby_job_letters_moved", map[string]float64{"action=replay": 3})
		n.has(e, "bartleby_job_letters", map[string]float64{
			"action=replay,outcome=waiting": 1, "action=replay,outcome=acknowledged": 1, "action=replay,outcome=died_again": 1, "action=replay,outcome=expired": 0, "action=replay,outcome=dropped": 0, "action=replay,outcome=removed": 0,
		})
	}
	n.has(totals, "bartleby_active_job_letters_planned", map[string]float64{})
	n.has(each, "bartleby_active_job_letters_planned", map[string]float64{"action=replay,job=2,vhost=/": 2})
}

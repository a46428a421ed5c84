package office

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// order takes all messages of a queue and returns their bodies.
func (d *bureau) order(name string) (bodies []string) {
	d.t.Helper()
	for {
		body, ok := d.take(name, partition.Ack)
		if !ok {
			return bodies
		}
		bodies = append(bodies, body)
	}
}

// Letters go in the order of a header's value: numbers first, then texts, then those without it, equal ones as they lie; the other
// way round with the newest first, but those without a value stay last.
func TestLettersGoInTheOrderOfAHeader(t *testing.T) {
	for order, want := range map[Order][]string{Oldest: {"c", "e", "a", "b", "f", "d"}, Newest: {"a", "e", "c", "f", "b", "d"}} {
		d := openBureau(t, vfs.NewMem(), nil)
		d.letters("classic", "classic", 0)
		for _, m := range []struct {
			body  string
			value any
		}{{"a", int64(10)}, {"b", "x"}, {"c", 2.5}, {"d", true}, {"e", uint8(9)}, {"f", "y"}} {
			d.publish("work", m.body, amqp091.Field{Key: "rank", Value: m.value})
			d.kill("work")
		}
		d.eventually("they have died", func() bool { return d.ready("dlq") == 6 })
		d.until(d.start(Request{Action: letters.Replay, Queue: "dlq", How: How{OrderBy: "header.rank", Order: order, Rate: 20}}).ID, Done)
		if got := d.order("work"); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", order, got, want)
		}
	}
	d := openBureau(t, vfs.NewMem(), nil)
	d.letters("classic", "classic", 1)
	for _, by := range []string{"rank", "header.", "property.type"} {
		if _, err := d.jobs.Dry(t.Context(), d.c, &Request{Action: letters.Replay, VHost: "/", Queue: "dlq", How: How{OrderBy: by}}); err == nil || !strings.Contains(err.Error(), "header.NAME") {
			t.Errorf("order_by %s: %v", by, err)
		}
	}
}

// A job for a group moves the letters that the catalogue has in it, and no other: also letters that share a group because there are
// too many different ones, which have no group of their own.
func TestAJobForAGroup(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		d := openBureau(t, vfs.NewMem(), nil)
		d.letters(kind, "classic", 0)
		for i := range 9 {
			d.publish("work", fmt.Sprint(i), amqp091.Field{Key: "x-exception-message", Value: []string{"timeout", "no customer", "timeout"}[i%3]})
			d.kill("work")
		}
		d.eventually("they have died", func() bool { return d.ready("dlq") == 9 })
		r := Request{Action: letters.Replay, Queue: "dlq", Filter: map[string][]string{"group": {d.group()}}, How: How{Limit: 5}}
		dry := r
		dry.VHost = "/"
		plan, err := d.jobs.Dry(t.Context(), d.c, &dry)
		if err != nil || plan.Count != 5 || plan.Routes[0].Letters != 6 {
			t.Fatalf("%+v, %v", plan, err)
		}
		if j := d.until(d.start(r).ID, Done); j.Moved != 5 {
			t.Errorf("%+v", j)
		}
		if got := d.order("work"); !slices.Equal(got, []string{"0", "2", "3", "5", "6"}) {
			t.Errorf("%s: %v", kind, got)
		}
		r.Limit = 0
		d.publish("work", "late", amqp091.Field{Key: "x-exception-message", Value: "timeout"})
		d.kill("work")
		d.eventually("it has died", func() bool { return d.ready("dlq") == 5 })
		r.Filter["body"] = []string{"8"}
		if j := d.until(d.start(r).ID, Done); j.Moved != 1 || !slices.Equal(d.order("work"), []string{"8"}) {
			t.Errorf("a group and a filter: %+v", j)
		}
	}
}

func TestLettersBeyondTheGroupsAreAGroupOfAJob(t *testing.T) {
	d := openBureau(t, vfs.NewMem(), nil)
	d.declare("dlq", "classic")
	for i := range maxGroups + 5 {
		class := fmt.Sprintf("E%c%c%c", 'a'+i%26, 'a'+i/26%26, 'a'+i/26/26)
		d.publish("dlq", class, amqp091.Field{Key: "x-exception-message", Value: "m"}, amqp091.Field{Key: "x-exception-stacktrace", Value: "com." + class + ": m"}, amqp091.Field{Key: "x-original-exchange", Value: ""}, amqp091.Field{Key: "x-original-routingKey", Value: "gone"})
	}
	d.declare("park", "classic")
	others := d.group()
	j := d.until(d.start(Request{Action: letters.Park, Queue: "dlq", Filter: map[string][]string{"group": {others}}, How: How{ToQueue: "park"}}).ID, Done)
	if j.Moved != 5 || d.ready("dlq") != maxGroups {
		t.Errorf("%+v", j)
	}
}

// Letters to one place go apart, and letters to several places go together.
func TestLettersToOnePlaceGoApart(t *testing.T) {
	d := openBureau(t, vfs.NewMem(), nil)
	d.declare("dlq", "classic")
	for _, q := range []string{"a", "b"} {
		d.declare(q, "classic", amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "dlq"})
	}
	for i := range 3 {
		for _, q := range []string{"a", "b"} {
			d.publish(q, fmt.Sprint(q, i))
			d.kill(q)
		}
	}
	d.eventually("they have died", func() bool { return d.ready("dlq") == 6 })
	const apart = 200
	began := time.Now()
	j := d.start(Request{Action: letters.Replay, Queue: "dlq", How: How{StaggerMS: apart}})
	d.eventually("the first of both have gone", func() bool { return d.ready("a") == 1 && d.ready("b") == 1 })
	if d.until(j.ID, Done).Moved != 6 || time.Since(began) < 2*apart*time.Millisecond {
		t.Errorf("three letters to each place have gone in %v", time.Since(began))
	}
	if _, err := d.jobs.Dry(t.Context(), d.c, &Request{Action: letters.Replay, VHost: "/", Queue: "dlq", How: How{StaggerMS: 5, Rate: 5}}); err == nil {
		t.Error("a rate and a pause")
	}
}

// A job that was planned for later begins then, also after a restart; it can be paused before. What was there when it was planned is moved.
func TestAJobBeginsWhenItIsPlanned(t *testing.T) {
	fs := vfs.NewMem()
	d := openBureau(t, fs, nil)
	d.letters("classic", "classic", 2)
	at := time.Now().Add(time.Hour).UnixMilli()
	j := d.start(Request{Action: letters.Replay, Queue: "dlq", How: How{ScheduleMS: at}})
	if j.State != Planned || j.BeganMS != 0 {
		t.Fatalf("%+v", j)
	}
	if _, err := d.jobs.Pause(j.ID, Actor{Who: "guest"}); err != nil {
		t.Fatal(err)
	}
	if j, err := d.jobs.Resume(j.ID, d.c, Actor{Who: "guest"}); err != nil || j.State != Planned {
		t.Fatalf("%+v, %v", j, err)
	}
	d.more(2, 1)
	d.close()
	d = openBureau(t, fs, nil)
	if now := d.job(j.ID); now.State != Planned || now.Moved != 0 {
		t.Fatalf("%+v", now)
	}
	d.close()
	d = openBureauWith(t, fs, Options{Now: func() time.Time { return time.Now().Add(2 * time.Hour) }})
	if j = d.until(j.ID, Done); j.Moved != 2 || j.BeganMS < at || d.ready("dlq") != 1 {
		t.Errorf("%+v", j)
	}
}

// Records of jobs that an earlier release wrote, with numbers as ids, are read.
func TestJobsOfEarlierReleases(t *testing.T) {
	fs := vfs.NewMem()
	d := openBureau(t, fs, nil)
	if err := d.b.PutRecords(mutation.All([]mutation.Change{{Key: jobKey(7), Value: []byte(`{"id":7,"action":"replay","vhost":"/","queues":["dlq"],"options":{},"state":"done","by":"guest","made_ms":5,"planned":1,` +
		`"examined":1,"unroutable":0,"refused":0,"no_origin":0,"too_often":0,"gone":0,"moved":0,"outcomes":{"waiting":0,"acknowledged":0,"died_again":0,"expired":0,"dropped":0,"removed":0},"at":5,"places":[{"queue":"dlq","incarnation":3,"cursor":null}],"current":1}`)}}), true); err != nil {
		t.Fatal(err)
	}
	d.close()
	d = openBureau(t, fs, nil)
	if j := d.job(7); j.ID != 7 || j.State != Done || j.MadeMS != 5 {
		t.Errorf("%+v", j)
	}
}

package office

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/run/partition"
)

// letterAt is a letter as it lies in a queue.
type letterAt struct {
	id, body string
	history  deadletter.History
}

// look lists what is in a queue, without changing anything.
func (d *bureau) look(name string) (list []letterAt) {
	d.t.Helper()
	q, err := d.b.AsOperator("test", "/").Find(message.QueueName(name), topology.Read)
	if err != nil {
		return nil
	}
	e, err := letters.Extent(d.b, q)
	for cursor, done := e.There, false; !done && err == nil; {
		cursor, done, err = letters.Browse(context.Background(), d.b, q, cursor, 100, func(v queue.View, rec message.Record, history []byte) bool {
			h, _ := deadletter.Parse(history)
			list = append(list, letterAt{letters.LetterID(q.Incarnation(), v.ID), string(rec.Body()), h})
			return true
		})
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return list
}

func bodiesOf(list []letterAt) (bodies []string) {
	for _, l := range list {
		bodies = append(bodies, l.body)
	}
	slices.Sort(bodies)
	return bodies
}

func editOf(id, body string, how How) Request {
	return Request{Action: letters.EditLetter, Queue: "dlq", IDs: []string{id}, Edit: &letter.Edit{Body: &body}, How: how}
}

// A node is killed at each step of an edit, on both types of queues and between them. In its next life the letter lies edited where it
// is to lie and nowhere else, the original is in the archive once, and the counters are exact. If the node had not yet stored the
// edited copy, nothing has changed.
func TestAnEditIsWholeAfterKill(t *testing.T) {
	points := slices.Concat(EditFailpoints, JobFailpoints, []string{
		partition.FailMailSent, partition.FailMailTaken, partition.FailDeathAppended, partition.FailPublishAppended, partition.FailCheckpointCut, partition.FailSettleAppended,
	})
	for _, point := range points {
		for k, kinds := range [][2]string{{"classic", "classic"}, {"classic", "quorum"}, {"quorum", "classic"}, {"quorum", "quorum"}} {
			for _, then := range []Then{ThenReplay, ThenStay} {
				for nth := 1; nth <= 2; nth++ {
					if nth > 1 && !slices.Contains(partition.Failpoints, point) {
						continue // an edit passes it once
					}
					editAndKill(t, point, nth, kinds, then, k)
					if t.Failed() {
						return
					}
				}
			}
		}
	}
}

func editAndKill(t *testing.T, point string, nth int, kinds [2]string, then Then, seed int) {
	what := fmt.Sprintf("%s for the %d. time, %v, %s", point, nth, kinds, then)
	fs := vfs.NewCrashableMem()
	var mu sync.Mutex
	var clone *vfs.MemFS
	armed := false
	d := openBureau(t, fs, func(name string) {
		mu.Lock()
		defer mu.Unlock()
		if !armed || name != point || clone != nil {
			return
		}
		if nth--; nth == 0 {
			clone = fs.CrashClone(vfs.CrashCloneCfg{})
		}
	})
	d.letters(kinds[0], kinds[1], 3)
	d.until(d.start(Request{Action: letters.Discard, Queue: "dlq", How: How{Limit: 1}}).ID, Done) // another's letter is in the archive
	id := d.look("dlq")[seed%2].id
	mu.Lock()
	armed = true
	mu.Unlock()
	j := d.until(d.start(editOf(id, "edited", How{Then: then})).ID, Done)
	mu.Lock()
	if clone == nil {
		clone = fs.CrashClone(vfs.CrashCloneCfg{})
	}
	mu.Unlock()
	d.close()

	d = openBureau(t, clone, nil)
	defer d.close()
	j, ok := d.jobs.Job(j.ID)
	if !ok { // it was killed before the job was stored
		j.State = Failed
	}
	d.eventually(what+": the job is over", func() bool {
		if ok {
			j = d.job(j.ID)
		}
		return j.State.over()
	})
	d.eventually("nothing is on its way", func() bool {
		c := d.counts("dlq")
		a := d.counts(string(broker.Archive))
		return c.Transit+c.Dying+c.Held+a.Transit+a.Dying+a.Held == 0
	})
	dlq, work, archive := d.look("dlq"), d.look("work"), d.look(string(broker.Archive))
	original := fmt.Sprint(1 + seed%2)
	left := fmt.Sprint(2 - seed%2)
	if j.State == Failed {
		if !slices.Equal(bodiesOf(dlq), []string{"1", "2"}) || len(work) != 0 || !slices.Equal(bodiesOf(archive), []string{"0"}) {
			t.Errorf("%s: it failed and something has changed: %v, %v, %v", what, bodiesOf(dlq), bodiesOf(work), bodiesOf(archive))
		}
		return
	}
	at, want := work, []string{left}
	if then == ThenStay {
		at, want = dlq, []string{left, "edited"}
	}
	if !slices.Equal(bodiesOf(dlq), want) || len(work)+len(dlq) != 2 || !slices.Equal(bodiesOf(archive), []string{"0", original}) {
		t.Errorf("%s: %v, %v, %v", what, bodiesOf(dlq), bodiesOf(work), bodiesOf(archive))
		return
	}
	copied := at[slices.IndexFunc(at, func(l letterAt) bool { return l.body == "edited" })].history
	kept := archive[slices.IndexFunc(archive, func(l letterAt) bool { return l.body == original })]
	if copied.EditedFrom != kept.id || copied.Draft || copied.Job != j.ID || kept.history.From != "dlq" || kept.history.Job != j.ID || kept.history.Sent || kept.history.Draft {
		t.Errorf("%s: the histories of copy and original %s: %+v, %+v", what, kept.id, copied, kept.history)
	}
	if then == ThenStay != (len(copied.Deaths) > 0) {
		t.Errorf("%s: the copy has %d deaths", what, len(copied.Deaths))
	}
	if now := d.job(j.ID); now.Moved != 1 || now.Outcomes != (Outcomes{Waiting: 1}) || now.Unroutable+now.Refused+now.Gone != 0 {
		t.Errorf("%s: %+v", what, now)
	}
}

// What an edit says is refused, and the letter stays as it was.
func TestWhatAnEditCannotSay(t *testing.T) {
	d := openBureau(t, vfs.NewMem(), nil)
	d.letters("classic", "classic", 1)
	id := d.look("dlq")[0].id
	edit := func(text string) *letter.Edit {
		e := &letter.Edit{}
		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber()
		if err := dec.Decode(e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	work, err := d.b.AsOperator("test", "/").Find("work", topology.Read)
	if err != nil {
		t.Fatal(err)
	}
	inWork := letters.LetterID(work.Incarnation(), 0)
	for _, c := range []struct {
		want   string
		change func(r *Request)
	}{
		{"it is missing", func(r *Request) { r.Edit = nil }},
		{"changes nothing", func(r *Request) { r.Edit = edit(`{"body":"0"}`) }},
		{"no base64", func(r *Request) { r.Edit = edit(`{"body":"%","body_encoding":"base64"}`) }},
		{"tells of deaths", func(r *Request) { r.Edit = edit(`{"headers":{"x-death":null}}`) }},
		{"own TTL", func(r *Request) { r.Edit = edit(`{"properties":{"expiration":"5"}}`) }},
		{"no such property", func(r *Request) { r.Edit = edit(`{"properties":{"colour":"red"}}`) }},
		{"0 to 255", func(r *Request) { r.Edit = edit(`{"properties":{"priority":256}}`) }},
		{"must be text", func(r *Request) { r.Edit = edit(`{"properties":{"type":7}}`) }},
		{"user_id", func(r *Request) { r.Edit = edit(`{"properties":{"user_id":"ada"}}`) }},
		{"headers of", func(r *Request) { r.Edit = edit(`{"headers":{"a":"` + strings.Repeat("x", 129<<10) + `"}}`) }},
		{"larger than configured", func(r *Request) { r.Edit = edit(`{"body":"` + strings.Repeat("x", 16<<20+1) + `"}`) }},
		{"one letter", func(r *Request) { r.IDs = append(r.IDs, "1.1") }},
		{"one letter", func(r *Request) { r.Filter = map[string][]string{"died": {"1"}} }},
		{"an edit has one letter", func(r *Request) { r.Rate = 1 }},
		{"must be replay or stay", func(r *Request) { r.Then = "fly" }},
		{"is to stay", func(r *Request) { r.Then, r.ToQueue = ThenStay, "work" }},
		{"has left", func(r *Request) { r.IDs = []string{id + "1"} }},
		{"no id", func(r *Request) { r.IDs = []string{"x"} }},
		{"is no id of a letter of queue 'dlq'", func(r *Request) { r.IDs = []string{inWork} }},
		{"only the action edit", func(r *Request) { r.Action = letters.Replay }},
	} {
		r := editOf(id, "new", How{})
		r.VHost = "/"
		c.change(&r)
		if _, err := d.jobs.Dry(t.Context(), d.c, &r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want an error with %q: %.200v", c.want, err)
		}
	}
	if now := d.look("dlq"); len(now) != 1 || now[0].id != id || len(d.look(string(broker.Archive))) != 0 {
		t.Error("something has changed")
	}
}

// A body of the maximal size is edited; the dry run shows the first part of both.
func TestAnEditOfTheLargestBody(t *testing.T) {
	d := openBureau(t, vfs.NewMem(), nil)
	d.letters("quorum", "classic", 1)
	large := strings.Repeat("\x00ab", 16<<20/3)
	text := base64.StdEncoding.EncodeToString([]byte(large))
	r := editOf(d.look("dlq")[0].id, text, How{})
	r.Edit.BodyEncoding = "base64"
	dry := r
	dry.VHost = "/"
	plan, err := d.jobs.Dry(t.Context(), d.c, &dry)
	if err != nil || len(plan.Diff) != 1 || plan.Diff[0].Before != "0" || !plan.Diff[0].Cut || len(plan.Diff[0].After.(string)) > 90<<10 {
		t.Fatalf("%v, %d changes", err, len(plan.Diff))
	}
	j := d.until(d.start(r).ID, Done)
	if body, _ := d.take("work", partition.Ack); body != large {
		t.Errorf("%d bytes arrived of %d", len(body), len(large))
	}
	if j = d.job(j.ID); j.Moved != 1 || j.Outcomes != (Outcomes{Acknowledged: 1}) {
		t.Errorf("%+v", j)
	}
}

// A copy that can go nowhere when its original is already in the archive lies in the queue of the original.
func TestAnEditedLetterThatCannotBeSentStays(t *testing.T) {
	var d *bureau
	deleted := false
	d = openBureau(t, vfs.NewMem(), func(name string) {
		if name == FailEditArchived && !deleted {
			deleted = true
			if _, err := d.c.DeleteQueue("work", false, false); err != nil {
				t.Error(err)
			}
		}
	})
	d.letters("classic", "quorum", 1)
	j := d.until(d.start(editOf(d.look("dlq")[0].id, "edited", How{})).ID, Done)
	if j.Unroutable != 1 || !strings.Contains(j.Why, "stays in its queue: exchange '' routes key 'work' to no queue") || j.Moved != 1 {
		t.Errorf("%+v", j)
	}
	if now := d.look("dlq"); len(now) != 1 || now[0].body != "edited" || len(now[0].history.Deaths) != 1 {
		t.Errorf("%+v", now)
	}
}

// Whoever takes the letter first has it: the edit is dropped, and nothing is left of it.
func TestAnEditOfALetterThatLeaves(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		var d *bureau
		staged := make(chan struct{})
		d = openBureau(t, vfs.NewMem(), func(name string) {
			if name != FailEditStaged {
				return
			}
			close(staged)
			if cancelled {
				d.b.SetAlarm(broker.Disk, true)
			} else if _, ok := d.take("dlq", partition.Ack); !ok {
				t.Error("there is no letter")
			}
		})
		d.letters("classic", "classic", 1)
		id := d.start(editOf(d.look("dlq")[0].id, "edited", How{})).ID
		<-staged
		if cancelled {
			d.until(id, Halted)
			if got := bodiesOf(d.look(string(broker.Archive))); !slices.Equal(got, []string{"edited"}) {
				t.Errorf("the archive has %v", got)
			}
			plan, err := d.jobs.Dry(t.Context(), d.c, &Request{Action: letters.Restore, VHost: "/", Queue: string(broker.Archive)})
			if err != nil || plan.Count != 0 {
				t.Errorf("another job would take the draft: %+v, %v", plan, err)
			}
			if _, err := d.jobs.Cancel(id, Actor{}); err != nil {
				t.Error(err)
			}
		} else if j := d.until(id, Done); j.Gone != 1 || j.Moved != 0 {
			t.Errorf("%+v", j)
		}
		d.eventually("the draft is dropped", func() bool { return len(d.look(string(broker.Archive))) == 0 })
	}
}

// Letters come back from the archive to the queue that they were discarded from, with their deaths; those of an edit that is not over
// do not.
func TestRestore(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		d := openBureau(t, vfs.NewMem(), nil)
		d.letters(kind, "classic", 3)
		d.declare("park", kind)
		d.until(d.start(Request{Action: letters.Park, Queue: "dlq", How: How{ToQueue: "park", Limit: 1}}).ID, Done)
		d.until(d.start(Request{Action: letters.Discard, Queues: []string{"dlq", "park"}}).ID, Done)
		if n := d.ready(string(broker.Archive)); n != 3 {
			t.Fatalf("%d are discarded", n)
		}
		if _, err := d.jobs.Dry(t.Context(), d.c, &Request{Action: letters.Restore, VHost: "/", Queue: "dlq"}); err == nil || !strings.Contains(err.Error(), "bartleby.archive") {
			t.Errorf("restore from elsewhere: %v", err)
		}
		j := d.until(d.start(Request{Action: letters.Restore, Queue: string(broker.Archive), How: How{Limit: 2}}).ID, Done)
		if j.Moved != 2 || !slices.Equal(bodiesOf(d.look("park")), []string{"0"}) && len(d.look("dlq"))+len(d.look("park")) != 2 {
			t.Errorf("%+v: %v in dlq, %v in park", j, bodiesOf(d.look("dlq")), bodiesOf(d.look("park")))
		}
		d.until(d.start(Request{Action: letters.Restore, Queue: string(broker.Archive), How: How{ToQueue: "park"}}).ID, Done)
		if n := len(d.look("dlq")) + len(d.look("park")); n != 3 || len(d.look(string(broker.Archive))) != 0 {
			t.Errorf("%d are restored", n)
		}
		for _, l := range d.look("park") {
			if len(l.history.Deaths) != 1 || l.history.From != string(broker.Archive) {
				t.Errorf("%+v", l)
			}
		}
	}
}

package office

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// bureau is a broker with its jobs.
type bureau struct {
	t      *testing.T
	b      *broker.Broker
	c      *broker.Connection
	office *Office
	jobs   *Jobs
	shut   bool
}

func openBureau(t *testing.T, fs vfs.FS, fail func(string)) *bureau {
	t.Helper()
	return openBureauWith(t, fs, Options{Failpoint: fail})
}

func openBureauWith(t *testing.T, fs vfs.FS, o Options) *bureau {
	t.Helper()
	return openBureauOn(t, broker.Options{FS: fs}, o)
}

func openBureauOn(t *testing.T, node broker.Options, o Options) *bureau {
	t.Helper()
	node.Dir, node.Failpoint, node.RetryHeld = "data", o.Failpoint, 10*time.Millisecond
	b, err := broker.Open(node)
	if err != nil {
		t.Fatal(err)
	}
	if b.AccountMark("guest") == "" { // the first start
		if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Tags: []string{"administrator"}, Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
			t.Fatal(err)
		}
	}
	d := &bureau{t: t, b: b, c: b.As("guest", "/")}
	o.Broker = b
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	d.office, d.jobs = f, f.Jobs
	t.Cleanup(d.close)
	return d
}

func (d *bureau) close() {
	if d.shut {
		return
	}
	d.shut = true
	d.office.Close()
	if err := d.b.Close(); err != nil {
		d.t.Error(err)
	}
}

func (d *bureau) declare(name, kind string, args ...amqp091.Field) {
	d.t.Helper()
	args = append([]amqp091.Field{{Key: "x-queue-type", Value: kind}}, args...)
	if _, err := d.c.DeclareQueue(topology.QueueDecl{Name: message.QueueName(name), Durable: true, Arguments: args}); err != nil {
		d.t.Fatal(err)
	}
}

// letters declares work, whose dead go to dlq, and kills messages there.
func (d *bureau) letters(source, target string, n int) {
	d.t.Helper()
	d.declare("dlq", source)
	d.declare("work", target, amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "dlq"})
	d.more(0, n)
}

func (d *bureau) more(from, n int) {
	d.t.Helper()
	before := d.ready("dlq")
	for i := range n {
		d.publish("work", fmt.Sprint(from+i), amqp091.Field{Key: "n", Value: int32(i % 4)})
		d.kill("work")
	}
	d.eventually("they have died", func() bool { return d.ready("dlq") == before+n })
}

func (d *bureau) publish(key, body string, headers ...amqp091.Field) {
	d.t.Helper()
	mode := uint8(2)
	raw := amqp091.AppendPropsFrom(nil, amqp091.PropertyList{DeliveryMode: &mode, Headers: headers})
	props, err := amqp091.ParseProps(raw)
	if err != nil {
		d.t.Fatal(err)
	}
	p := broker.Publication{Key: []byte(key), Raw: raw, Props: props, Body: [][]byte{[]byte(body)}, Size: len(body)}
	if routed, err := d.c.PublishOne(&p); err != nil || !routed {
		d.t.Fatal(routed, err)
	}
}

func (d *bureau) take(name string, kind partition.OpKind) (body string, ok bool) {
	d.t.Helper()
	after := broker.AckRemoves
	if kind == partition.Reject {
		after = broker.RejectRemoves
	}
	err := d.c.Take(message.QueueName(name), 1, after, func(s *broker.Shown) (bool, error) {
		body, ok = string(s.Body), true
		return true, nil
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.c.Settle()
	return body, ok
}

func (d *bureau) kill(name string) {
	d.t.Helper()
	if _, ok := d.take(name, partition.Reject); !ok {
		d.t.Fatalf("%s has no message", name)
	}
}

func (d *bureau) counts(name string) (c partition.Counts) {
	var q *partition.Queue
	d.b.Read(func(s *topology.State, _ *auth.Users) {
		if v, ok := s.VHost("/"); ok {
			if decl, ok := v.Queue(message.QueueName(name)); ok {
				q = decl.Runtime.(*partition.Queue)
			}
		}
	})
	if q != nil { // a group may have to be waited for, with nothing locked
		c = d.b.Node().Counts(q)
	}
	return c
}

func (d *bureau) ready(name string) int {
	d.t.Helper()
	declared, err := d.c.PassiveQueue(message.QueueName(name))
	if err != nil {
		d.t.Fatal(err)
	}
	return declared.Messages
}

func (d *bureau) eventually(what string, f func() bool) {
	d.t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			d.t.Fatalf("not in 20 s: %s", what)
		}
	}
}

// group is the id of the largest group.
func (d *bureau) group() string {
	d.t.Helper()
	var a GroupsAnswer
	d.eventually("the groups are known", func() (ok bool) {
		var err error
		if a, err = d.office.Groups(d.t.Context(), GroupsRequest{}); err != nil {
			d.t.Fatal(err)
		}
		return !a.Reading && len(a.Items) > 0
	})
	return a.Items[0].ID
}

// start makes a job with its dry run.
func (d *bureau) start(r Request) Job {
	d.t.Helper()
	r.VHost = "/"
	dry := r
	plan, err := d.jobs.Dry(d.t.Context(), d.c, &dry)
	if err != nil {
		d.t.Fatal(err)
	}
	r.Token, r.Count = plan.Token, &plan.Count
	j, err := d.jobs.Start(d.t.Context(), d.c, &r)
	if err != nil {
		d.t.Fatal(err)
	}
	return j
}

func (d *bureau) job(id uint64) Job {
	d.t.Helper()
	j, ok := d.jobs.Job(id)
	if !ok {
		d.t.Fatalf("there is no job %d", id)
	}
	return j
}

func (d *bureau) until(id uint64, s State) Job {
	d.t.Helper()
	d.eventually(fmt.Sprintf("job %d is %s", id, s), func() bool { return d.job(id).State == s })
	return d.job(id)
}

// A dry run says what the job does, and changes nothing; the job does it, and knows what becomes of its letters.
func TestAJobDoesWhatItsDryRunSaid(t *testing.T) {
	for _, source := range []string{"classic", "quorum"} {
		for _, target := range []string{"classic", "quorum"} {
			for _, order := range []Order{Oldest, Newest} {
				t.Run(source+" "+target+" "+string(order), func(t *testing.T) {
					d := openBureau(t, vfs.NewMem(), nil)
					d.letters(source, target, 6)
					r := Request{Action: letters.Replay, VHost: "/", Queue: "dlq", How: How{Order: order, Limit: 4}}
					plan, err := d.jobs.Dry(t.Context(), d.c, &r)
					if err != nil || plan.Count != 4 || plan.Of != 6 || len(plan.Routes) != 1 || plan.Routes[0].RoutingKey != "work" || !slices.Equal(plan.Routes[0].Queues, []string{"work"}) {
						t.Fatalf("%+v, %v", plan, err)
					}
					if d.ready("dlq") != 6 || len(d.jobs.List()) != 0 {
						t.Error("a dry run has changed something")
					}
					r = Request{Action: letters.Replay, VHost: "/", Queues: []string{"dlq"}, How: r.How, Token: plan.Token, Count: &plan.Count, Reason: "mended"}
					j, err := d.jobs.Start(t.Context(), d.c, &r)
					if err != nil {
						t.Fatal(err)
					}
					j = d.until(j.ID, Done)
					if j.Moved != 4 || j.Planned != 4 || j.By != "guest" || j.Reason != "mended" || j.Outcomes != (Outcomes{Waiting: 4}) || d.ready("dlq") != 2 || d.ready("work") != 4 {
						t.Fatalf("%+v; %d and %d", j, d.ready("dlq"), d.ready("work"))
					}
					first, _ := d.take("work", partition.Ack)
					if want := map[Order]string{Oldest: "0", Newest: "2"}[order]; first != want {
						t.Errorf("the first is %s, want %s", first, want)
					}
					d.kill("work")
					d.eventually("one has died again", func() bool {
						return d.job(j.ID).Outcomes == Outcomes{Waiting: 2, Acknowledged: 1, DiedAgain: 1}
					})
				})
			}
		}
	}
}

// A job needs what the dry run of the same request said.
func TestAJobNeedsItsDryRun(t *testing.T) {
	d := openBureau(t, vfs.NewMem(), nil)
	d.letters("classic", "classic", 2)
	plan := func() (Request, Plan) {
		r := Request{Action: letters.Replay, VHost: "/", Queue: "dlq"}
		p, err := d.jobs.Dry(t.Context(), d.c, &r)
		if err != nil {
			t.Fatal(err)
		}
		r.Token, r.Count = p.Token, &p.Count
		return r, p
	}
	for want, change := range map[string]func(r *Request){
		"missing":          func(r *Request) { r.Token = "" },
		"not known":        func(r *Request) { r.Token = "x" },
		"another":          func(r *Request) { r.Rate = 5 },
		"the dry run said": func(r *Request) { r.Count = new(int) },
		"has grown":        func(*Request) { d.more(2, 1) },
		"action":           func(r *Request) { r.Action = "burn" },
		"canary":           func(r *Request) { r.Canary = &Canary{} },
		"older_than":       func(r *Request) { r.Filter = map[string][]string{"older_than": {"x"}} },
	} {
		r, _ := plan()
		change(&r)
		_, err := d.jobs.Start(t.Context(), d.c, &r)
		var e *Error
		if want == "older_than" {
			r.Token = ""
			_, err = d.jobs.Dry(t.Context(), d.c, &r)
		}
		if !errors.As(err, &e) || !strings.Contains(e.Text, want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	r, p := plan()
	d.more(3, 2)
	r.AllowGrowth = true
	j, err := d.jobs.Start(t.Context(), d.c, &r)
	if err != nil || j.Planned != p.Count+2 {
		t.Errorf("%+v, %v", j, err)
	}
	d.until(j.ID, Done)
}

// Letters keep their deaths where they are parked and in the archive, from where they find back; what was replayed too often
// stays.
func TestLettersAreParkedDiscardedAndComeBack(t *testing.T) {
	d := openBureau(t, vfs.NewMem(), nil)
	d.letters("quorum", "classic", 3)
	d.declare("park", "classic")
	j := d.until(d.start(Request{Action: letters.Park, Queue: "dlq", How: How{ToQueue: "park", Limit: 2}}).ID, Done)
	if d.ready("park") != 2 || j.Moved != 2 {
		t.Fatalf("%+v", j)
	}
	d.until(d.start(Request{Action: letters.Discard, Queue: "park"}).ID, Done)
	if d.ready(string(broker.Archive)) != 2 || d.job(j.ID).Outcomes.Removed != 2 {
		t.Fatalf("%d are discarded, %+v", d.ready(string(broker.Archive)), d.job(j.ID))
	}
	for range defaultMaxReplays {
		d.until(d.start(Request{Action: letters.Replay, Queue: string(broker.Archive)}).ID, Done)
		if d.ready("work") != 2 {
			t.Fatalf("%d came back", d.ready("work"))
		}
		for range 2 {
			d.kill("work")
		}
		d.eventually("they have died again", func() bool { return d.ready("dlq") == 3 })
		d.until(d.start(Request{Action: letters.Discard, Queue: "dlq", Filter: map[string][]string{"job": {fmt.Sprint(d.jobs.last)}}}).ID, Done)
		if d.ready(string(broker.Archive)) == 0 { // the filter job needs what reading knows of marks
			d.until(d.start(Request{Action: letters.Discard, Queue: "dlq", How: How{Order: Newest, Limit: 2}}).ID, Done)
		}
	}
	j = d.until(d.start(Request{Action: letters.Replay, Queue: string(broker.Archive)}).ID, Done)
	if j.TooOften != 2 || j.Moved != 0 || d.ready(string(broker.Archive)) != 2 {
		t.Errorf("%+v", j)
	}
}

// A queue of the archive's name with other arguments, which a client has declared in strict mode, is not used. It says what to do, and that helps.
func TestTheArchiveMustBeOurs(t *testing.T) {
	fs := vfs.NewMem()
	strict, err := broker.Open(broker.Options{FS: fs, Dir: "data", Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := strict.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Tags: []string{"administrator"}, Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	if _, err := strict.As("guest", "/").DeclareQueue(topology.QueueDecl{Name: broker.Archive, Durable: true}); err != nil {
		t.Fatal(err)
	}
	if err := strict.Close(); err != nil {
		t.Fatal(err)
	}
	d := openBureau(t, fs, nil)
	d.letters("classic", "classic", 1)
	j := d.until(d.start(Request{Action: letters.Discard, Queue: "dlq"}).ID, Halted)
	if !strings.Contains(j.Why, "x-message-ttl") || !strings.Contains(j.Why, "delete it") || d.ready("dlq") != 1 {
		t.Errorf("%+v", j)
	}
	if _, err := d.c.DeleteQueue(broker.Archive, false, false); err != nil {
		t.Fatal(err)
	}
	if _, err := d.jobs.Resume(j.ID, d.c, Actor{Who: "guest"}); err != nil {
		t.Fatal(err)
	}
	if d.until(j.ID, Done); d.ready("dlq") != 0 {
		t.Errorf("%d stay", d.ready("dlq"))
	}
}

// A canary halts the job if too many of the first letters die again; a resumed job goes on without.
func TestACanaryHaltsAJob(t *testing.T) {
	d := openBureau(t, vfs.NewMem(), nil)
	d.letters("classic", "quorum", 10)
	j := d.start(Request{Action: letters.Replay, Queue: "dlq", How: How{Canary: &Canary{First: 4, WaitMS: 1000, Percent: 25}}})
	d.eventually("the first have moved, and it says until when it waits", func() bool {
		at := d.job(j.ID)
		return at.Moved == 4 && at.CanaryUntilMS >= at.BeganMS+1000
	})
	for range 2 {
		d.kill("work")
	}
	if j = d.until(j.ID, Halted); !strings.Contains(j.Why, "2 of the first 4") || j.Moved != 4 || j.CanaryUntilMS != 0 {
		t.Errorf("%+v", j)
	}
	if _, err := d.jobs.Resume(j.ID, d.c, Actor{Who: "guest"}); err != nil {
		t.Fatal(err)
	}
	if j = d.until(j.ID, Done); j.Moved != 10 {
		t.Errorf("%+v", j)
	}
	if _, err := d.jobs.Pause(j.ID, Actor{Who: "guest"}); err == nil {
		t.Error("what is done was paused")
	}
	if d.ready("dlq") != 2 {
		t.Errorf("%d are left: what died again was met again", d.ready("dlq"))
	}
}

// A canary whose letters nobody has consumed tells nothing: the job halts, and does not send the others after them.
func TestACanaryThatNobodyConsumesHaltsAJob(t *testing.T) {
	d := openBureau(t, vfs.NewMem(), nil)
	d.letters("classic", "classic", 5)
	j := d.start(Request{Action: letters.Replay, Queue: "dlq", How: How{Canary: &Canary{First: 2, WaitMS: 1, Percent: 25}}})
	if j = d.until(j.ID, Halted); !strings.Contains(j.Why, "none of the first 2 letters was consumed") || j.Moved != 2 {
		t.Errorf("%+v", j)
	}
}

// A job pauses, goes on, is cancelled; an alarm halts it for as long as it lasts; a right that is taken away halts it, and it
// goes on when somebody who has it says so; with its queue it ends.
func TestAJobIsStoppedInTheMiddle(t *testing.T) {
	d := openBureau(t, vfs.NewMem(), nil)
	d.letters("classic", "classic", 40)
	slow := Request{Action: letters.Replay, Queue: "dlq", How: How{Rate: 20}}
	j := d.start(slow)
	moves := func() {
		before := d.job(j.ID).Moved
		d.eventually("it moves", func() bool { return d.job(j.ID).Moved > before })
	}
	moves()
	if _, err := d.jobs.Pause(j.ID, Actor{Who: "guest"}); err != nil || d.job(j.ID).State != Paused {
		t.Fatal(err, d.job(j.ID).State)
	}
	if _, err := d.jobs.Resume(j.ID, d.c, Actor{Who: "guest"}); err != nil {
		t.Fatal(err)
	}
	moves()
	d.b.SetAlarm(broker.Disk, true)
	if j := d.until(j.ID, Halted); !strings.Contains(j.Why, "low on disk") {
		t.Errorf("%+v", j)
	}
	d.b.SetAlarm(broker.Disk, false)
	d.until(j.ID, Running)
	moves()
	if _, err := d.b.By("").Do(declare.PutPermission{Permission: auth.Permission{VHost: "/", User: "guest", Configure: ".*", Write: "", Read: ".*"}}); err != nil {
		t.Fatal(err)
	}
	if j := d.until(j.ID, Halted); !strings.Contains(j.Why, "refused") {
		t.Errorf("%+v", j)
	}
	if _, err := d.b.By("").Do(declare.PutPermission{Permission: auth.Permission{VHost: "/", User: "guest", Configure: ".*", Write: ".*", Read: ".*"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.jobs.Resume(j.ID, d.c, Actor{Who: "guest"}); err != nil {
		t.Fatal(err)
	}
	moves()
	if _, err := d.jobs.Cancel(j.ID, Actor{Who: "guest"}); err != nil {
		t.Fatal(err)
	}
	if d.job(j.ID).State != Cancelled {
		t.Error("it is not cancelled")
	}
	d.eventually("it has stopped", func() bool {
		d.jobs.mu.Lock()
		defer d.jobs.mu.Unlock()
		return d.jobs.jobs[j.ID].wake == nil
	})
	if moved := int(d.job(j.ID).Moved); moved+d.ready("dlq") != 40 || moved != d.ready("work") {
		t.Errorf("%d have moved, %d are left", moved, d.ready("dlq"))
	}
	j = d.start(slow)
	if _, err := d.c.DeleteQueue("dlq", false, false); err != nil {
		t.Fatal(err)
	}
	if j := d.until(j.ID, Done); !strings.Contains(j.Why, "deleted") {
		t.Errorf("%+v", j)
	}
}

// After a restart a job does not go on for an account that was made anew under the name of the one that began it. Whoever
// resumes it gives it rights.
func TestAJobIsNotInheritedWithAName(t *testing.T) {
	fs := vfs.NewMem()
	d := openBureau(t, fs, nil)
	d.letters("classic", "classic", 20)
	j := d.start(Request{Action: letters.Replay, Queue: "dlq", How: How{Rate: 1}})
	d.close()
	b, err := broker.Open(broker.Options{FS: fs, Dir: "data"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.By("").Do(declare.DeleteUser{Name: "guest"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	d = openBureau(t, fs, nil)
	if j, _ := d.jobs.Job(j.ID); j.State != Halted || !strings.Contains(j.Why, "account of user 'guest'") {
		t.Errorf("the job is %s: %s", j.State, j.Why)
	}
	if _, err := d.jobs.Resume(j.ID, d.c, Actor{Who: "guest"}); err != nil {
		t.Fatal(err)
	}
	if j, _ := d.jobs.Job(j.ID); j.State != Running {
		t.Errorf("resumed, the job is %s: %s", j.State, j.Why)
	}
}

// A node is killed at each step of a job's slices, on both types of queues and between them. In its next life the job goes on:
// each letter is in one place, and all counters are exact. A letter of the queue that came after the job began is not moved.
func TestAJobGoesOnAfterKill(t *testing.T) {
	points := slices.Concat(JobFailpoints, []string{partition.FailMailSent, partition.FailMailTaken, partition.FailCheckpointCut, partition.FailDeathAppended})
	for i, point := range points {
		for k, kinds := range [][2]string{{"classic", "classic"}, {"classic", "quorum"}, {"quorum", "classic"}, {"quorum", "quorum"}} {
			for _, how := range []How{{}, {Order: Newest}, {OrderBy: "header.n", Order: Newest}, {StaggerMS: 1}, {OrderBy: "a group"}} {
				t.Run(fmt.Sprint(point, kinds, how), func(t *testing.T) {
					t.Parallel() // they wait most of the time
					killJob(t, point, 1+(i+k)%3, kinds, how)
				})
			}
		}
	}
}

// killJob kills a node when its job passes the failpoint for the nth time.
func killJob(t *testing.T, point string, nth int, kinds [2]string, how How) {
	fs := vfs.NewCrashableMem()
	var mu sync.Mutex
	var clone *vfs.MemFS
	armed, left := false, nth
	d := openBureau(t, fs, func(name string) {
		mu.Lock()
		defer mu.Unlock()
		if !armed || name != point || clone != nil {
			return
		}
		if left--; left == 0 {
			clone = fs.CrashClone(vfs.CrashCloneCfg{})
		}
	})
	const many = 12
	d.letters(kinds[0], kinds[1], many)
	d.publish("dlq", "no letter")
	mu.Lock()
	armed = true
	mu.Unlock()
	r := Request{Action: letters.Replay, Queue: "dlq", How: how}
	if how.OrderBy == "a group" {
		r.OrderBy, r.Filter = "", map[string][]string{"group": {d.group()}}
	}
	if how.StaggerMS == 0 {
		r.Rate = 50 // slices of 5
	}
	j := d.start(r)
	d.publish("dlq", "late")
	d.until(j.ID, Done)
	mu.Lock()
	if clone == nil {
		clone = fs.CrashClone(vfs.CrashCloneCfg{})
	}
	mu.Unlock()
	d.close()

	d = openBureau(t, clone, nil)
	j, ok := d.jobs.Job(j.ID)
	if !ok {
		t.Fatalf("%s: the job is gone", point)
	}
	j = d.until(j.ID, Done)
	d.eventually("nothing is on its way", func() bool {
		c := d.counts("dlq")
		return c.Transit+c.Dying+c.Held == 0
	})
	bodies := map[string]int{}
	for _, q := range []string{"dlq", "work"} {
		for {
			body, ok := d.take(q, partition.Ack)
			if !ok {
				break
			}
			bodies[body]++
			bodies[q+" "+body]++
		}
	}
	for _, other := range []string{"no letter", "late"} {
		if bodies["dlq "+other] != 1 && other == "no letter" || bodies["work "+other] != 0 {
			t.Errorf("%s, %v: %v: what is no letter of the job", point, kinds, bodies)
		}
	}
	for n := range many {
		if bodies[fmt.Sprint(n)] != 1 {
			t.Errorf("%s, %v: letter %d is there %d times", point, kinds, n, bodies[fmt.Sprint(n)])
		}
	}
	now := d.job(j.ID)
	if now.Moved != many || now.Outcomes.Waiting != 0 || now.Outcomes.Acknowledged != many || now.NoOrigin+now.Unroutable+now.Refused+now.TooOften != 0 {
		t.Errorf("%s, %v, %+v: %+v", point, kinds, how, now)
	}
	d.close()
	if t.Failed() {
		return
	}
}

// Finished jobs beyond those that are kept are forgotten, with their tallies.
func TestOldJobsAreForgotten(t *testing.T) {
	fs := vfs.NewMem()
	d := openBureau(t, fs, nil)
	d.letters("classic", "classic", 1)
	first := d.until(d.start(Request{Action: letters.Replay, Queue: "dlq"}).ID, Done)
	for i := range keptJobs - 1 {
		r := record{Job: Job{ID: first.ID + uint64(i) + 1, State: Done, By: first.By}}
		d.jobs.mu.Lock()
		d.jobs.jobs[r.ID] = &job{r: r}
		d.jobs.last = r.ID
		err := d.jobs.store(&r, false)
		d.jobs.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	last := d.until(d.start(Request{Action: letters.Replay, Queue: "dlq"}).ID, Done)
	if _, ok := d.jobs.Job(first.ID); ok || last.ID != first.ID+keptJobs {
		t.Errorf("job %d, the oldest of %d, is still there", first.ID, last.ID)
	}
	d.eventually("its tally is forgotten", func() bool { return d.b.Node().JobTally(first.ID) == partition.JobTally{} })
	d.close()
	d = openBureau(t, fs, nil)
	if list := d.jobs.List(); len(list) != keptJobs || list[0].ID != last.ID {
		t.Errorf("%d jobs after a restart", len(list))
	}
}

// What a user asks for in vain is bounded: tokens and unfinished jobs of one user, and the bytes of a filter.
func TestOneUserDoesNotKeepOthersFromJobs(t *testing.T) {
	d := openBureau(t, vfs.NewMem(), nil)
	d.letters("classic", "classic", 3)
	ask := func(c *broker.Connection) (Plan, Request) {
		t.Helper()
		r := Request{Action: letters.Replay, VHost: "/", Queue: "dlq"}
		p, err := d.jobs.Dry(t.Context(), c, &r)
		if err != nil {
			t.Fatal(err)
		}
		return p, r
	}
	other := d.b.AsOperator("other", "/")
	kept, _ := ask(other)
	for range userPlans + 1 {
		ask(d.c)
	}
	d.jobs.mu.Lock()
	n, others := len(d.jobs.plans), d.jobs.plans[kept.Token]
	d.jobs.mu.Unlock()
	if n != userPlans+1 || others == nil {
		t.Errorf("%d plans are kept, another user's: %v", n, others)
	}
	begin := func(c *broker.Connection) error {
		p, r := ask(c)
		r.Token, r.Count, r.Rate = p.Token, &p.Count, 0
		j, err := d.jobs.Start(t.Context(), c, &r)
		if err == nil {
			_, err = d.jobs.Pause(j.ID, Actor{Who: "guest"})
		}
		return err
	}
	d.jobs.mu.Lock()
	for i := range uint64(userJobs) {
		d.jobs.jobs[1000+i] = &job{r: record{Job: Job{ID: 1000 + i, State: Paused, By: "guest"}}}
	}
	d.jobs.mu.Unlock()
	if err := begin(d.c); err == nil || !strings.Contains(err.Error(), "one user") {
		t.Errorf("one more job of the user: %v", err)
	}
	if err := begin(other); err != nil && !strings.Contains(err.Error(), "is done") {
		t.Errorf("a job of another user: %v", err)
	}
	_, err := d.jobs.Dry(t.Context(), d.c, &Request{Action: letters.Replay, VHost: "/", Queue: "dlq", Filter: map[string][]string{"body": {strings.Repeat("<", 5000)}}})
	if err == nil || !strings.Contains(err.Error(), "4096 bytes") {
		t.Errorf("a filter of 5,000 bytes: %v", err)
	}
}

// A job whose queues are as its dry run has found them does not look at the letters again; a letter that came meanwhile, one that has
// left and one that a consumer has are noticed.
func TestAPlanStandsWhileNothingChanges(t *testing.T) {
	d := openBureau(t, vfs.NewMem(), nil)
	d.letters("classic", "classic", 3)
	request := func() (Request, []seenQueue, *plan) {
		t.Helper()
		r := Request{Action: letters.Replay, VHost: "/", Queue: "dlq"}
		p, err := d.jobs.Dry(t.Context(), d.c, &r)
		if err != nil {
			t.Fatal(err)
		}
		seen, _, err := r.meet(d.c)
		if err != nil {
			t.Fatal(err)
		}
		d.jobs.mu.Lock()
		defer d.jobs.mu.Unlock()
		return r, seen, d.jobs.plans[p.Token]
	}
	r, seen, p := request()
	if !p.stands(seen) {
		t.Error("nothing has changed, and the plan does not stand")
	}
	for _, change := range []struct {
		what string
		make func()
	}{
		{"a letter has come", func() { d.more(3, 1) }},
		{"a letter has left", func() {
			if err := d.c.Take("dlq", 1, broker.AckRemoves, func(*broker.Shown) (bool, error) { return true, nil }); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		r, _, p = request()
		change.make()
		if seen, _, err := r.meet(d.c); err != nil || p.stands(seen) {
			t.Errorf("%s, and the plan stands (%v)", change.what, err)
		}
	}
}

// A user's many jobs push out none of another's finished jobs, and leave others room to begin some.
func TestJobsAreSharedByUser(t *testing.T) {
	d := openBureau(t, vfs.NewMem(), nil)
	defer d.close()
	d.letters("classic", "classic", 1)
	d.jobs.mu.Lock()
	d.jobs.jobs[1] = &job{r: record{Job: Job{ID: 1, State: Done, By: "ann"}}}
	for i := range uint64(keptJobs + 60) {
		d.jobs.jobs[2+i] = &job{r: record{Job: Job{ID: 2 + i, State: Done, By: "low"}}}
	}
	err := d.jobs.prune()
	_, anns := d.jobs.jobs[1]
	if _, oldest := d.jobs.jobs[62]; err != nil || !anns || oldest || len(d.jobs.jobs) != keptJobs {
		t.Errorf("%d jobs, ann's is there: %v, low's oldest: %v, %v", len(d.jobs.jobs), anns, oldest, err)
	}
	for i := range uint64(activeJobs) {
		d.jobs.jobs[5000+i] = &job{r: record{Job: Job{ID: 5000 + i, State: Paused, By: fmt.Sprint("low", i%4)}}}
	}
	d.jobs.last = 9000
	d.jobs.mu.Unlock()
	d.until(d.start(Request{Action: letters.Replay, Queue: "dlq"}).ID, Done)
}

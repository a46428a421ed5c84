package office

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/wire/amqp091"
)

type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// desk is a broker in memory with an office, and its first user.
type desk struct {
	failer
	b *broker.Broker
	c *broker.Connection
	f *Office
}

func openDesk(t *testing.T, files vfs.FS) *desk {
	t.Helper()
	b, err := broker.Open(broker.Options{FS: files, Dir: "data"})
	if err != nil {
		t.Fatal(err)
	}
	if b.Empty() {
		if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Tags: []string{"administrator"}, Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
			t.Fatal(err)
		}
	}
	f, err := New(Options{Broker: b})
	if err != nil {
		t.Fatal(err)
	}
	return &desk{t, b, b.As("guest", "/"), f}
}

func (d *desk) close() {
	d.f.Close()
	if err := d.b.Close(); err != nil {
		d.Fatal(err)
	}
}

func open(t *testing.T) *desk {
	d := openDesk(t, vfs.NewMem())
	t.Cleanup(d.close)
	return d
}

func (d *desk) declare(name string, args ...amqp091.Field) {
	d.Helper()
	if _, err := d.c.DeclareQueue(topology.QueueDecl{Name: message.QueueName(name), Durable: true, Arguments: args}); err != nil {
		d.Fatal(err)
	}
}

// declareWork declares a queue whose rejected messages go to another one.
func (d *desk) declareWork(name, dead string) {
	d.declare(name, amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: dead})
}

func (d *desk) publish(key, body, failure string, priority uint8) {
	d.Helper()
	l := amqp091.PropertyList{DeliveryMode: new(uint8(2)), Priority: &priority, MessageID: &body}
	if failure != "" {
		l.Headers = amqp091.Table{{Key: "x-exception-message", Value: failure}}
	}
	raw := amqp091.AppendPropsFrom(nil, l)
	props, err := amqp091.ParseProps(raw)
	if err != nil {
		d.Fatal(err)
	}
	p := &broker.Publication{Key: []byte(key), Raw: raw, Props: props, Body: [][]byte{[]byte(body)}, Size: len(body)}
	if _, err := d.c.PublishOne(p); err != nil {
		d.Fatal(err)
	}
}

// take takes messages of a queue and returns their bodies.
func (d *desk) take(name string, n int, after broker.After) (bodies []string) {
	d.Helper()
	err := d.c.Take(message.QueueName(name), n, after, func(s *broker.Shown) (bool, error) {
		bodies = append(bodies, fmt.Sprintf("%s %t", s.Body, s.Redelivered))
		return true, nil
	})
	if err != nil {
		d.Fatal(err)
	}
	d.settle()
	return bodies
}

// settle returns when what has died is where it goes.
func (d *desk) settle() {
	for busy := true; busy; {
		busy = false
		for _, q := range d.b.CountQueues() {
			busy = busy || q.Counts.Transit > 0 || q.Counts.Unsettled
		}
	}
}

// die makes a message die in a queue.
func (d *desk) die(work, body, failure string) {
	d.Helper()
	d.publish(work, body, failure, 0)
	d.take(work, 1, broker.RejectRemoves)
}

func (d *desk) info(name string) (q broker.QueueInfo) {
	d.Helper()
	q, err := d.c.Find(message.QueueName(name), topology.Read)
	if err != nil {
		d.Fatal(err)
	}
	return q
}

// groups returns all groups of an office that has finished reading.
func (d *desk) groups(f *Office, r GroupsRequest) GroupsAnswer {
	d.Helper()
	for {
		a, err := f.Groups(context.Background(), r)
		if err != nil {
			d.Fatal(err)
		}
		if !a.Reading {
			return a
		}
	}
}

func (d *desk) letters(name string, filters map[string][]string, r LettersRequest) (rows []Row, end LettersEnd) {
	d.Helper()
	var err error
	if r.Query, err = letter.ParseQuery("/", filters, d.f.now()); err != nil {
		d.Fatal(err)
	}
	end, err = d.f.Letters(context.Background(), d.info(name), r, func(row *Row) bool { rows = append(rows, *row); return true }, nil)
	if err != nil {
		d.Fatal(err)
	}
	return rows, end
}

func previews(rows []Row) (list []string) {
	for _, r := range rows {
		list = append(list, r.Preview)
	}
	return list
}

// Letters that died alike are one group, whatever numbers their errors have, and in whichever queue they are.
func TestGroups(t *testing.T) {
	d := open(t)
	d.declare("dead")
	d.declare("other")
	d.declare("plain")
	d.declareWork("orders", "dead")
	d.declareWork("bills", "other")
	for i := range 5 {
		d.die("orders", fmt.Sprint("order ", i), fmt.Sprintf("no customer %d", 100+i))
	}
	d.die("orders", "bad", "")
	d.die("bills", "bill", "card declined")
	d.publish("plain", "never died", "", 0)
	a := d.groups(d.f, GroupsRequest{})
	if a.Total != 3 || a.Letters != 7 || len(a.Items) != 3 {
		t.Fatalf("%+v", a)
	}
	g := a.Items[0]
	if g.Letters != 5 || g.Error != "no customer #" || g.Source != "orders" || g.Reason != "rejected" || g.State != "new" || g.Queues[0].Name != "dead" {
		t.Errorf("%+v", g)
	}
	sum := 0
	for _, n := range g.Arrivals.Counts {
		sum += n
	}
	if sum != 5 || len(g.Arrivals.Counts) != 60 {
		t.Errorf("the curve has %d deaths: %+v", sum, g.Arrivals)
	}
	if w, err := d.f.Letter(d.c, d.info(string(g.Sample.Queue)), g.Sample.ID, 10, false); err != nil || w.Group != g.ID {
		t.Errorf("the sample is %+v, %v", w.Row, err)
	}
	for text, want := range map[string]int{"CUSTOMER": 1, "declined": 1, "order": 2, "nothing": 0} {
		if got := d.groups(d.f, GroupsRequest{Text: text}).Total; got != want {
			t.Errorf("%d groups mention %q, want %d", got, text, want)
		}
	}
	// Pages in all orders show each group once.
	for _, sort := range GroupSorts {
		for _, ascending := range []bool{false, true} {
			r := GroupsRequest{Sort: sort, Ascending: ascending, Limit: 1}
			seen := map[string]bool{}
			for n := 0; ; n++ {
				page := d.groups(d.f, r)
				for _, g := range page.Items {
					seen[g.ID] = true
				}
				if page.Next == nil {
					if len(seen) != 3 || n != 2 {
						t.Errorf("by %s: %d groups on %d pages", sort, len(seen), n+1)
					}
					break
				}
				r.Cursor = *page.Next
			}
		}
	}
	for _, bad := range []GroupsRequest{{Sort: "colour"}, {State: "lost"}, {Cursor: "x"}, {Cursor: "MSA5IGE"}} {
		if _, err := d.f.Groups(context.Background(), bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	rows := d.f.Queues(context.Background(), Scope{})
	if len(rows) != 2 || rows[0].Name != "dead" || rows[0].Letters != 6 || rows[0].Arrived.Minutes != 6 || rows[0].Oldest == 0 || !cmp.Equal(rows[0].Sources, []string{"orders"}) {
		t.Errorf("%+v", rows)
	}
	if rows := d.f.Queues(context.Background(), Scope{May: func(q broker.QueueInfo) bool { return q.Decl.Name == "other" }}); len(rows) != 1 || rows[0].Name != "other" {
		t.Errorf("who may see one queue sees %+v", rows)
	}
}

// After any operations a catalogue that was brought up to date now and then is what a catalogue made anew is.
func TestACatalogueIsAsIfMadeAnew(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		files := vfs.NewMem()
		d := openDesk(t, files)
		defer func() { d.close() }()
		kind := rapid.SampledFrom([]amqp091.Field{{Key: "x-queue-type", Value: "quorum"}, {Key: "x-max-priority", Value: int32(3)}, {Key: "x-queue-mode", Value: "lazy"}}).Draw(rt, "kind")
		d.declare("dead", kind)
		d.declareWork("work", "dead")
		n := 0
		check := func() {
			t.Helper()
			fresh, err := New(Options{Broker: d.b})
			if err != nil {
				t.Fatal(err)
			}
			defer fresh.Close()
			got, want := d.groups(d.f, GroupsRequest{}), d.groups(fresh, GroupsRequest{})
			ignore := cmp.Options{cmpopts.IgnoreFields(GroupsAnswer{}, "Read", "Entries"), cmpopts.IgnoreUnexported(Group{}), cmpopts.IgnoreFields(Group{}, "Arrivals")}
			if diff := cmp.Diff(want, got, ignore); diff != "" {
				rt.Fatalf("made anew, and brought up to date:\n%s", diff)
			}
			rows, _ := d.letters("dead", nil, LettersRequest{})
			oldest, _ := d.letters("dead", nil, LettersRequest{Oldest: true})
			if len(rows) != got.Letters || len(oldest) != len(rows) {
				rt.Fatalf("%d letters in groups, %d newest first, %d oldest first", got.Letters, len(rows), len(oldest))
			}
			for i := range rows {
				if rows[i].ID != oldest[len(oldest)-1-i].ID {
					rt.Fatalf("newest first is not oldest first the other way round")
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"die": func(rt *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(rt, "n") {
					n++
					d.publish("work", fmt.Sprint(n), fmt.Sprintf("kind %c", 'a'+rapid.IntRange(0, 3).Draw(rt, "error")), uint8(rapid.IntRange(0, 3).Draw(rt, "priority")))
				}
				d.take("work", 0, broker.RejectRemoves)
			},
			"publish": func(rt *rapid.T) {
				n++
				d.publish("dead", fmt.Sprint(n), rapid.SampledFrom([]string{"", "parked"}).Draw(rt, "failure"), 1)
			},
			"consume": func(rt *rapid.T) { d.take("dead", rapid.IntRange(1, 12).Draw(rt, "n"), broker.AckRemoves) },
			"requeue": func(rt *rapid.T) { d.take("dead", rapid.IntRange(1, 5).Draw(rt, "n"), broker.NackRequeues) },
			"purge": func(*rapid.T) {
				if _, err := d.c.Purge("dead"); err != nil {
					t.Fatal(err)
				}
			},
			"remake": func(*rapid.T) {
				if _, err := d.c.DeleteQueue("dead", false, false); err != nil {
					t.Fatal(err)
				}
				d.declare("dead", kind)
			},
			"replay": func(rt *rapid.T) {
				if _, err := letters.As(d.c).Replay(context.Background(), "dead", letters.ReplayRequest{Limit: rapid.IntRange(1, 9).Draw(rt, "n")}); err != nil {
					t.Fatal(err)
				}
				d.settle()
			},
			"restart": func(*rapid.T) {
				before := d.groups(d.f, GroupsRequest{})
				d.close()
				d = openDesk(t, files)
				if after := d.groups(d.f, GroupsRequest{}); after.Letters != before.Letters || after.Total != before.Total {
					rt.Fatalf("before a restart %+v, after it %+v", before, after)
				}
			},
			"look": func(*rapid.T) { check() },
			"":     func(*rapid.T) {},
		})
		check()
	})
}

// Looking changes nothing: with somebody looking all the time consumers get the same messages in the same order, with the
// same flags.
func TestLookingChangesNothing(t *testing.T) {
	script := func(browse bool) (got []string, counts string) {
		d := open(t)
		d.declare("dead", amqp091.Field{Key: "x-delivery-limit", Value: int32(20)}, amqp091.Field{Key: "x-queue-type", Value: "quorum"})
		d.declareWork("work", "dead")
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for browse && ctx.Err() == nil {
				a, _ := d.f.Groups(ctx, GroupsRequest{})
				for _, g := range a.Items {
					if q, err := d.c.Find("dead", topology.Read); err == nil {
						_, _ = d.f.Letter(d.b.As("guest", "/"), q, g.Sample.ID, 1, false)
						_, _ = d.f.Letters(ctx, q, LettersRequest{}, func(*Row) bool { return true }, nil)
					}
				}
			}
		}()
		for i := range 300 {
			d.publish("work", fmt.Sprint(i), "no", 0)
			if i%3 == 0 {
				got = append(got, d.take("work", 2, broker.RejectRemoves)...)
			}
			if i%7 == 0 {
				got = append(got, d.take("dead", 3, broker.NackRequeues)...)
				got = append(got, d.take("dead", 1, broker.AckRemoves)...)
			}
		}
		stop()
		<-ended
		for _, q := range d.b.CountQueues() {
			counts += fmt.Sprintln(q.Queue.Name, q.Counts.Totals)
		}
		return append(got, d.take("dead", 0, broker.AckRemoves)...), counts
	}
	alone, count := script(false)
	watched, count2 := script(true)
	if diff := cmp.Diff(alone, watched); diff != "" || count != count2 {
		t.Errorf("deliveries without and with somebody looking:\n%s\n%s\n%s", diff, count, count2)
	}
}

// Pages show each letter once, and a look stops where it is told.
func TestLettersByPages(t *testing.T) {
	d := open(t)
	d.declare("dead")
	d.declareWork("work", "dead")
	for i := range 10 {
		d.publish("work", fmt.Sprintf("m%d", i), map[bool]string{true: "even", false: "odd"}[i%2 == 0], 0)
	}
	d.take("work", 0, broker.RejectRemoves)
	d.take("dead", 1, broker.AckRemoves)
	for _, oldest := range []bool{false, true} {
		var got []string
		r := LettersRequest{Oldest: oldest, Limit: 2}
		for {
			rows, end := d.letters("dead", map[string][]string{"error": {"odd"}}, r)
			got = append(got, previews(rows)...)
			if end.Next == nil {
				break
			}
			if *end.Stopped != "limit" {
				t.Errorf("stopped by %s", *end.Stopped)
			}
			r.Cursor = *end.Next
		}
		want := "m9 m7 m5 m3 m1"
		if oldest {
			want = "m1 m3 m5 m7 m9"
		}
		if strings.Join(got, " ") != want {
			t.Errorf("oldest first %t: %v, want %s", oldest, got, want)
		}
	}
	if rows, end := d.letters("dead", nil, LettersRequest{Bytes: 1}); len(rows) != 1 || *end.Stopped != "bytes" {
		t.Errorf("%d letters, stopped by %v", len(rows), end.Stopped)
	}
	if rows, end := d.letters("dead", nil, LettersRequest{Answer: 1}); len(rows) != 1 || *end.Stopped != "answer" || end.Next == nil {
		t.Errorf("%d letters, stopped by %v", len(rows), end.Stopped)
	}
	// A client that goes within a slice has it end there: the next letter is not looked at.
	ctx, leave := context.WithCancel(t.Context())
	end, err := d.f.Letters(ctx, d.info("dead"), LettersRequest{}, func(*Row) bool { leave(); return true }, nil)
	if end.Examined != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d letters were looked at after the client had gone: %v", end.Examined, err)
	}
	rows, _ := d.letters("dead", nil, LettersRequest{})
	for _, cursor := range []string{"x", "1.zzzzzzzzzzzz", "zz." + strings.SplitN(rows[0].ID, ".", 2)[1]} {
		if _, err := d.f.Letters(context.Background(), d.info("dead"), LettersRequest{Cursor: cursor}, nil, nil); err == nil {
			t.Errorf("cursor %q is taken", cursor)
		}
	}
}

// All of one letter; and what its id means when it has gone, when its queue is made anew, and after a restart.
func TestOneLetter(t *testing.T) {
	files := vfs.NewMem()
	d := openDesk(t, files)
	defer func() { d.close() }()
	d.declare("dead")
	d.declareWork("work", "dead")
	d.die("work", `{"order": 1}`, "ValueError: bad total 7")
	d.die("work", "second", "")
	d.publish("dead", "never died", "", 0)
	rows, _ := d.letters("dead", nil, LettersRequest{Oldest: true})
	if len(rows) != 2 {
		t.Fatalf("%d letters", len(rows))
	}
	check := func() {
		t.Helper()
		w, err := d.f.Letter(d.c, d.info("dead"), rows[0].ID, 5, false)
		if err != nil {
			t.Fatal(err)
		}
		if string(w.Body) != `{"ord` || w.Size != 12 || w.Row.ErrorClass != "ValueError" || w.Error != "bad total 7" || w.Cause.From != "spring" || w.State != "ready" ||
			len(w.Timeline) != 1 || w.Timeline[0].Queue != "work" || w.Timeline[0].Count != 1 || !cmp.Equal(w.Keys, []string{"work"}) {
			t.Errorf("%+v", w)
		}
		if want := (letters.Forecast{Keys: []string{"work"}, Queues: []string{"work"}}); !cmp.Equal(w.Replay, want) {
			t.Errorf("a replay would go to %+v", w.Replay)
		}
	}
	check()
	d.close()
	d = openDesk(t, files)
	check()
	reader := d.b.As("guest", "/")
	if _, err := d.c.DeleteQueue("work", false, false); err != nil {
		t.Fatal(err)
	}
	if w, err := d.f.Letter(reader, d.info("dead"), rows[0].ID, 5, false); err != nil || w.Replay.Problem != "exchange '' routes key 'work' to no queue" {
		t.Errorf("%+v, %v", w.Replay, err)
	}
	d.take("dead", 1, broker.AckRemoves)
	incarnation, first, _ := ParseLetterID(rows[0].ID)
	for _, c := range []struct {
		id   string
		want error
	}{
		{rows[0].ID, ErrGone}, {letters.LetterID(incarnation, first+2), ErrNever}, {letters.LetterID(incarnation, first+1000), ErrNever}, {letters.LetterID(incarnation+1000, first), ErrNever}, {"x", ErrNever}, {"", ErrNever},
		{letters.LetterID(incarnation, 200<<56), ErrNever},
	} {
		if _, err := d.f.Letter(reader, d.info("dead"), c.id, 5, false); !errors.Is(err, c.want) {
			t.Errorf("%q: %v, want %v", c.id, err, c.want)
		}
	}
	if _, err := d.c.DeleteQueue("dead", false, false); err != nil {
		t.Fatal(err)
	}
	d.declare("dead")
	if _, err := d.f.Letter(reader, d.info("dead"), rows[1].ID, 5, false); !errors.Is(err, ErrGone) {
		t.Errorf("an id of the queue before: %v", err)
	}
}

// What people say of a group is there after a restart; a resolved group of which letters die is new.
func TestNotes(t *testing.T) {
	files := vfs.NewMem()
	d := openDesk(t, files)
	defer func() { d.close() }()
	d.declare("dead")
	d.declareWork("work", "dead")
	d.die("work", "a", "no")
	id := d.groups(d.f, GroupsRequest{}).Items[0].number
	if _, err := d.f.SetNote("/", id, NoteRequest{State: new("triaged"), Owner: new("ann")}, Actor{Who: "guest"}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.f.SetNote("/", id, NoteRequest{Note: new("see ticket 7")}, Actor{Who: "bob"}); err != nil {
		t.Fatal(err)
	}
	d.close()
	d = openDesk(t, files)
	g := d.groups(d.f, GroupsRequest{State: "triaged"}).Items[0]
	if g.Owner != "ann" || g.Note.Note != "see ticket 7" || g.By != "bob" || g.At == 0 {
		t.Errorf("%+v", g.Note)
	}
	for _, r := range []NoteRequest{{State: new("lost")}, {Owner: new(strings.Repeat("x", 256))}, {Note: new("\xff")}} {
		if _, err := d.f.SetNote("/", id, r, Actor{Who: "bob"}); err == nil {
			t.Errorf("%+v is taken", r)
		}
	}
	if _, err := d.f.SetNote("/", id, NoteRequest{State: new("resolved")}, Actor{Who: "bob"}); err != nil {
		t.Fatal(err)
	}
	if g := d.groups(d.f, GroupsRequest{}).Items[0]; g.State != "resolved" {
		t.Errorf("state %s", g.State)
	}
	d.f.notes.mu.Lock()
	for k, n := range d.f.notes.of {
		n.At -= 5000
		d.f.notes.of[k] = n
	}
	d.f.notes.mu.Unlock()
	d.die("work", "b", "no")
	if g := d.groups(d.f, GroupsRequest{}).Items[0]; g.State != "new" || g.Owner != "ann" {
		t.Errorf("after another death: %+v", g.Note)
	}
}

// A catalogue that was dropped for room is made again; one of a deleted queue is forgotten.
func TestCataloguesAreWithinTheirBudget(t *testing.T) {
	d := open(t)
	for i := range 4 {
		dead, work := fmt.Sprint("dead", i), fmt.Sprint("work", i)
		d.declare(dead)
		d.declareWork(work, dead)
		d.die(work, "x", "no")
	}
	d.f.CatalogueBytes = 1
	for range 3 {
		if a := d.groups(d.f, GroupsRequest{}); a.Letters != 4 {
			t.Fatalf("%d letters", a.Letters)
		}
	}
	d.f.catalogues.mu.Lock()
	n := len(d.f.catalogues.of)
	d.f.catalogues.mu.Unlock()
	if n != 1 {
		t.Errorf("%d catalogues are kept, want that of the last queue", n)
	}
	for i := range 4 {
		if _, err := d.c.DeleteQueue(message.QueueName(fmt.Sprint("dead", i)), false, false); err != nil {
			t.Fatal(err)
		}
	}
	if a := d.groups(d.f, GroupsRequest{}); a.Letters != 0 || len(d.f.catalogues.of) != 0 {
		t.Errorf("%d letters, %d catalogues", a.Letters, len(d.f.catalogues.of))
	}
}

// More kinds of errors than a catalogue tells apart are counted together.
func TestTooManyGroupsAreOne(t *testing.T) {
	c := &catalogue{index: map[letter.Key]uint32{}}
	for i := range 3 * maxGroups {
		k := letter.Key{Source: fmt.Sprint("queue", i), Reason: "rejected", Error: fmt.Sprint(i)}
		c.group("/", k, k, nil)
	}
	if len(c.groups) > 2*maxGroups+1 {
		t.Errorf("%d groups", len(c.groups))
	}
}

func FuzzReadNote(f *testing.F) {
	k := groupKey{"/", 7}
	f.Add(k.record()[len(datadir.RecordPrefix):], []byte(`{"state":"new"}`))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if k, _, err := readNote(key, value); err == nil && string(k.record()[len(datadir.RecordPrefix):]) != string(key) {
			t.Errorf("%q is read as %+v", key, k)
		}
	})
}

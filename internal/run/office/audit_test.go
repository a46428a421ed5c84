package office

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/run/letters"
)

func audited(t *testing.T, fs vfs.FS, at *time.Time) (*Audit, func()) {
	t.Helper()
	b, err := broker.Open(broker.Options{FS: fs, Dir: "data"})
	if err != nil {
		t.Fatal(err)
	}
	a, err := openAudit(b, slog.New(slog.DiscardHandler), func() time.Time { return *at })
	if err != nil {
		t.Fatal(err)
	}
	return a, func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func acts(t *testing.T, a *Audit, q ActQuery) (list []Entry, next uint64) {
	t.Helper()
	list, next, err := a.List(q)
	if err != nil {
		t.Fatal(err)
	}
	return list, next
}

// An act is read back as it was told, after a restart too, and the numbers go on.
func TestActsOutliveARestart(t *testing.T) {
	fs, at := vfs.NewMem(), time.UnixMilli(1_800_000_000_000)
	a, end := audited(t, fs, &at)
	act := Act{Actor{"ann", "10.0.0.1:5"}, "rules.changed", "/", "r1", "see ticket 7", 3, `{"on": true}`, "bob"}
	a.Record(act)
	end()
	a, end = audited(t, fs, &at)
	defer end()
	list, _ := acts(t, a, ActQuery{})
	if len(list) != 1 || list[0] != (Entry{ID: 1, At: at.UnixMilli(), Act: act, Times: 1, Last: at.UnixMilli()}) {
		t.Fatalf("%+v", list)
	}
	a.Record(Act{What: "rules.changed"})
	if list, _ := acts(t, a, ActQuery{}); len(list) != 2 || list[0].ID != 2 {
		t.Errorf("%+v", list)
	}
}

// The audit keeps the last 10,000 acts, and a page is never longer than its limit.
func TestTheOldestActsGo(t *testing.T) {
	fs, at := vfs.NewMem(), time.UnixMilli(1_800_000_000_000)
	a, end := audited(t, fs, &at)
	const n = MaxActs + 384
	for i := range n {
		a.Record(Act{What: "job.made", Object: fmt.Sprint(i)})
	}
	count := func() (kept int) {
		_ = a.b.RangeRecords(auditKey, func(_, _ []byte) error { kept++; return nil })
		return kept
	}
	if kept := count(); kept != MaxActs {
		t.Errorf("%d entries are stored", kept)
	}
	end()
	a, end = audited(t, fs, &at)
	defer end()
	seen := 0
	for q := (ActQuery{Limit: 777}); ; {
		list, next := acts(t, a, q)
		for _, e := range list {
			if e.Object != fmt.Sprint(n-1-seen) {
				t.Fatalf("entry %d from the end is %+v", seen, e)
			}
			seen++
		}
		if next == 0 {
			break
		}
		if len(list) != 777 {
			t.Fatalf("a page has %d entries", len(list))
		}
		q.Before = next
	}
	if seen != MaxActs {
		t.Errorf("%d entries are shown", seen)
	}
}

// Filters choose by virtual host, by user and by what was done; a page that ends with the last entry has no next.
func TestActsAreChosen(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_000)
	a, end := audited(t, vfs.NewMem(), &at)
	defer end()
	for i := range 600 {
		a.Record(Act{Actor: Actor{Who: fmt.Sprint("u", i%2)}, What: []string{"job.made", "job.done", "group.noted"}[i%3], VHost: fmt.Sprint("v", i%5), Object: fmt.Sprint(i)})
	}
	for _, c := range []struct {
		q    ActQuery
		want int
	}{
		{ActQuery{}, 600},
		{ActQuery{Who: new("u1")}, 300},
		{ActQuery{Who: new("")}, 0},
		{ActQuery{VHost: new("v3")}, 120},
		{ActQuery{What: "job.made"}, 200},
		{ActQuery{What: "job.*"}, 400},
		{ActQuery{What: "job"}, 0},
		{ActQuery{What: "*", Who: new("u0"), VHost: new("v0")}, 60},
	} {
		if list, next := acts(t, a, c.q); len(list) != c.want || next != 0 {
			t.Errorf("%+v: %d entries, next %d; want %d", c.q, len(list), next, c.want)
		}
		c.q.Limit = c.want
		if list, next := acts(t, a, c.q); c.want > 0 && (len(list) != c.want || next != 0) {
			t.Errorf("%+v: %d entries, next %d; want %d and none", c.q, len(list), next, c.want)
		}
	}
}

// Who repeats the same acts again and again pushes out nobody else's: alike ones within a minute are one entry.
func TestRepeatedActsAreOneEntry(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_000)
	a, end := audited(t, vfs.NewMem(), &at)
	defer end()
	for i := range 100 {
		a.Record(Act{What: []string{"job.paused", "job.resumed"}[i%2], Object: "5"})
		at = at.Add(500 * time.Millisecond)
	}
	list, _ := acts(t, a, ActQuery{})
	if len(list) != 2 || list[1].Times != 50 || list[1].Last != list[1].At+49_000 {
		t.Errorf("%+v", list)
	}
	at = at.Add(time.Minute)
	a.Record(Act{What: "job.paused", Object: "5"})
	if list, _ := acts(t, a, ActQuery{}); len(list) != 3 || list[0].ID != 3 || list[0].Times != 1 {
		t.Errorf("%+v", list)
	}
}

// Texts are cut, and what is no UTF-8 is left out.
func TestLongActsAreCut(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_000)
	a, end := audited(t, vfs.NewMem(), &at)
	defer end()
	a.Record(Act{Why: strings.Repeat("ä", maxReason), Detail: "a\xffb"})
	list, _ := acts(t, a, ActQuery{})
	if e := list[0]; len(e.Why) > maxReason || !strings.HasSuffix(e.Why, "ä…") || e.Detail != "ab" {
		t.Errorf("%d bytes, %q", len(list[0].Why), list[0].Detail)
	}
}

// An act and what it is about are on disk together or not at all.
func TestAnActIsWrittenWithItsRecords(t *testing.T) {
	fs, at := vfs.NewCrashableMem(), time.UnixMilli(1_800_000_000_000)
	a, end := audited(t, fs, &at)
	defer end()
	if err := a.With(Act{What: "masks.changed"}, []mutation.Change{{Key: []byte(datadir.RecordPrefix + "mask/x"), Value: []byte("m")}}); err != nil {
		t.Fatal(err)
	}
	after, endAfter := audited(t, fs.CrashClone(vfs.CrashCloneCfg{}), &at)
	defer endAfter()
	masks := 0
	_ = after.b.RangeRecords("mask/", func(_, _ []byte) error { masks++; return nil })
	if list, _ := acts(t, after, ActQuery{}); len(list) != 1 || masks != 1 {
		t.Errorf("%+v, %d records", list, masks)
	}
}

// What is done to a job and what becomes of it stands in the audit, with its numbers; an alarm does not.
func TestJobsAreInTheAudit(t *testing.T) {
	d := openBureau(t, vfs.NewMem(), nil)
	a := d.jobs.office.audit
	d.letters("classic", "classic", 3)
	ann := Actor{"ann", "10.0.0.1:5"}
	r := Request{Action: letters.Replay, VHost: "/", Queue: "dlq", How: How{Rate: 1}, Reason: "mended", By: ann}
	p, err := d.jobs.Dry(t.Context(), d.c, &r)
	if err != nil {
		t.Fatal(err)
	}
	r.Token, r.Count = p.Token, &p.Count
	j, err := d.jobs.Start(t.Context(), d.c, &r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.jobs.Pause(j.ID, ann); err != nil {
		t.Fatal(err)
	}
	d.jobs.mu.Lock()
	d.jobs.jobs[j.ID].r.Options.Rate = 0
	d.jobs.mu.Unlock()
	if _, err := d.jobs.Resume(j.ID, d.c, Actor{"bob", "local"}); err != nil {
		t.Fatal(err)
	}
	d.eventually("it is done", func() bool { return d.job(j.ID).State == Done })
	list, _ := acts(t, a, ActQuery{})
	var told []string
	for _, e := range list {
		told = append(told, fmt.Sprintf("%s %s %s %s %d", e.Who, e.What, e.Object, e.Why, e.Count))
	}
	got := strings.Join(told, "\n")
	for i, want := range []string{" job.done 1 mended 3", "bob job.resumed 1 mended", "ann job.paused 1 mended", "ann job.made 1 mended 3"} {
		if len(told) != 4 || !strings.HasPrefix(told[i], want) {
			t.Fatalf("entry %d is not %q:\n%s", i, want, got)
		}
	}
	if !strings.Contains(list[0].Detail, `"waiting":3`) || !strings.Contains(list[3].Detail, `"queues":["dlq"]`) {
		t.Errorf("%s\n%s", list[0].Detail, list[3].Detail)
	}
}

// Who floods the audit, and has the node flood it, loses the own entries, after a restart too. What is done again from the same
// machine is the same, whichever port it comes from.
func TestAFloodPushesOutItsOwnActs(t *testing.T) {
	fs, at := vfs.NewMem(), time.UnixMilli(1_800_000_000_000)
	a, end := audited(t, fs, &at)
	a.Record(Act{Actor: Actor{"ann", "10.0.0.1:5"}, What: "letters.discarded"})
	a.Record(Act{What: "rule.stopped"})
	for i := range 2 * MaxActs {
		a.Record(Act{Actor: Actor{"low", fmt.Sprint("10.0.0.2:", i)}, What: "letters.imported", Object: "q"})
	}
	if list, _ := acts(t, a, ActQuery{}); len(list) != 3 || list[0].Times != 2*MaxActs {
		t.Fatalf("%d entries", len(list))
	}
	flood := func(n int) {
		for i := range n {
			a.Record(Act{Actor: Actor{Who: "low"}, What: "job.made", Object: fmt.Sprint(i)})
			a.Record(Act{What: "job.done", Object: fmt.Sprint(i), For: "low"})
		}
	}
	flood(MaxActs/2 + 100)
	for range 2 {
		list, _ := acts(t, a, ActQuery{})
		if len(list) != MaxActs || list[MaxActs-1].Who != "ann" || list[MaxActs-2].What != "rule.stopped" {
			t.Fatalf("%d entries, the oldest %+v", len(list), list[len(list)-1])
		}
		end()
		a, end = audited(t, fs, &at)
		flood(3)
	}
	if out := a.PushedOut(); out != 203+12 {
		t.Errorf("%d are pushed out", out)
	}
	end()
}

// If the entry about the end of a virtual host is pushed out, what is told of this one goes too: nobody takes it for that of a later one.
func TestNoActOutlivesTheEndOfItsVirtualHost(t *testing.T) {
	fs, at := vfs.NewMem(), time.UnixMilli(1_800_000_000_000)
	a, end := audited(t, fs, &at)
	a.Record(Act{Actor: Actor{Who: "ann"}, What: "group.noted", VHost: "v", Why: "a secret"})
	a.endVHost("v", broker.Doer{Who: "admin"})
	for i := range MaxActs {
		a.Record(Act{Actor: Actor{Who: "admin"}, What: "vhost.changed", Object: fmt.Sprint(i)})
	}
	for range 2 {
		if list, _ := acts(t, a, ActQuery{VHost: new("v")}); len(list) != 0 {
			t.Errorf("%+v", list)
		}
		end()
		a, end = audited(t, fs, &at)
	}
	end()
}

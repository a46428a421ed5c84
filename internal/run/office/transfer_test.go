package office

import (
	"bytes"
	"context"
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
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/cluster"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

func (d *bureau) export(name string, filters map[string][]string) string {
	d.t.Helper()
	q, err := d.c.Find(message.QueueName(name), topology.Read)
	if err != nil {
		d.t.Fatal(err)
	}
	query, err := letter.ParseQuery("/", filters, d.office.now())
	if err != nil {
		d.t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := d.office.Export(d.t.Context(), q, "guest", &query, func(line []byte) error { b.Write(line); return nil }); err != nil {
		d.t.Fatal(err)
	}
	return b.String()
}

func (d *bureau) importInto(name, lines string) Imported {
	d.t.Helper()
	to, err := letters.As(d.c).Importer(message.QueueName(name), false)
	if err != nil {
		d.t.Fatal(err)
	}
	r, err := d.office.Import(d.t.Context(), to, strings.NewReader(lines), 16<<20)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// whole is everything of the messages of a queue, without what is of their place.
func (d *bureau) whole(name string) (list []letter.Line) {
	d.t.Helper()
	q, err := d.c.Find(message.QueueName(name), topology.Read)
	if err != nil {
		d.t.Fatal(err)
	}
	e, err := letters.Extent(d.b, q)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, _, err := letters.Browse(context.Background(), d.b, q, e.There, 10_000, func(_ queue.View, rec message.Record, history []byte) bool {
		list = append(list, letter.Line{
			Exchange: string(rec.Exchange()), Key: string(rec.Key()), BCC: slices.Clone(rec.BCC()), Properties: slices.Clone(rec.Properties()), Body: slices.Clone(rec.Body()), History: slices.Clone(history),
		})
		return true
	}); err != nil {
		d.t.Fatal(err)
	}
	return list
}

// What is exported from one queue and imported into another is equal, also after a restart, on both types of queues; nothing is left in
// the archive.
func TestAnExportIsImportedEqual(t *testing.T) {
	for _, from := range []string{"classic", "quorum"} {
		for _, to := range []string{"classic", "quorum"} {
			fs := vfs.NewMem()
			d := openBureau(t, fs, nil)
			d.letters(from, "classic", 5)
			d.publish("work", strings.Repeat("\x00", 5<<20), amqp091.Field{Key: "BCC", Value: amqp091.Array{"other"}}, amqp091.Field{Key: "t", Value: amqp091.Table{{Key: "x", Value: amqp091.Array{int8(1), []byte{0xff}, amqp091.Timestamp(5)}}}})
			d.kill("work")
			d.publish("dlq", "parked", amqp091.Field{Key: "x-exception-message", Value: "m"}, amqp091.Field{Key: "x-original-routingKey", Value: "work"})
			d.publish("dlq", "no letter")
			d.until(d.start(Request{Action: letters.Park, Queue: "dlq", How: How{Limit: 1, ToQueue: "work"}}).ID, Done)
			d.until(d.start(Request{Action: letters.Park, Queue: "work", How: How{ToQueue: "dlq"}}).ID, Done)
			lines := d.export("dlq", nil)
			if n := strings.Count(lines, "\n"); n != 7 {
				t.Fatalf("%d letters are exported", n)
			}
			d.declare("copy", to)
			if r := d.importInto("copy", lines); r.Imported != 7 || len(r.Refused) != 0 {
				t.Fatalf("%+v", r)
			}
			d.close()
			d = openBureau(t, fs, nil)
			want := d.whole("dlq")
			want = slices.DeleteFunc(want, func(l letter.Line) bool { return string(l.Body) == "no letter" })
			got := d.whole("copy")
			if len(got) != len(want) {
				t.Fatalf("%d letters are in the copy, want %d", len(got), len(want))
			}
			sortLines(want)
			sortLines(got)
			for i := range want {
				sent := mark(want[i].History)
				if sent != 0 {
					want[i].History = unsent(want[i].History)
				}
				h, _ := deadletter.Parse(want[i].History) // one that has not died has none
				h.Imported = true
				want[i].History = h.Append(nil)
				if fmt.Sprint(got[i]) != fmt.Sprint(want[i]) {
					t.Errorf("%s to %s: letter %d\n got %.500q\nwant %.500q", from, to, i, fmt.Sprint(got[i]), fmt.Sprint(want[i]))
				}
			}
			if a := d.look(string(broker.Archive)); len(a) != 0 {
				t.Errorf("%d are left in the archive", len(a))
			}
			d.close()
		}
	}
}

// A node is killed at each step of an import. In its next life every letter whose import was answered is there once, equal to the original. Of an import
// that was not answered each is there once or not at all; what is left in the archive is a draft, which nobody takes for a letter.
func TestAnImportThroughKills(t *testing.T) {
	for _, point := range slices.Concat(partition.Failpoints, cluster.Failpoints, journal.Failpoints) {
		for _, to := range []string{"classic", "quorum"} {
			for nth := 1; nth <= 4; nth++ {
				t.Run(fmt.Sprint(point, " ", to, " ", nth), func(t *testing.T) {
					t.Parallel()
					killImport(t, point, to, nth)
				})
			}
		}
	}
}

func killImport(t *testing.T, point, to string, nth int) {
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
	const letters = 12
	d.letters("classic", "classic", letters)
	lines := d.export("dlq", nil)
	d.declare("copy", to)
	d.publish("work", "whose sync makes all before it durable")
	mu.Lock()
	armed = true
	mu.Unlock()
	if r := d.importInto("copy", lines); r.Imported != letters {
		t.Fatalf("%+v", r)
	}
	mu.Lock()
	answered := clone == nil
	if answered {
		clone = fs.CrashClone(vfs.CrashCloneCfg{})
	}
	mu.Unlock()
	d.close()
	d = openBureau(t, clone, nil)
	defer d.close()
	want := map[string]string{}
	for _, l := range d.whole("dlq") {
		h, _ := deadletter.Parse(l.History)
		h.Imported = true
		l.History = h.Append(nil)
		want[string(l.Body)] = fmt.Sprint(l)
	}
	if len(want) != letters {
		t.Fatalf("%d of the originals are there", len(want))
	}
	copies := d.whole("copy")
	for _, l := range copies {
		if want[string(l.Body)] != fmt.Sprint(l) {
			t.Errorf("%s: a copy that is none, or there twice: %.300q", l.Body, fmt.Sprint(l))
		}
		delete(want, string(l.Body))
	}
	if answered && len(want) > 0 {
		t.Errorf("%d letters are missing though the import was answered", len(want))
	}
	for _, l := range d.look(string(broker.Archive)) {
		if !l.history.Draft {
			t.Errorf("%s is in the archive as a letter", l.body)
		}
	}
	if n := strings.Count(d.exportIfThere(string(broker.Archive)), "\n"); n > 0 {
		t.Errorf("%d drafts are shown", n)
	}
}

// exportIfThere is export of a queue that may not be there.
func (d *bureau) exportIfThere(name string) string {
	if _, err := d.c.Find(message.QueueName(name), topology.Read); err != nil {
		return ""
	}
	return d.export(name, nil)
}

// A line that is wrong, and a letter for which there is no room, are named by the number of the line; the others are imported.
func TestLinesThatAreRefused(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		d := openBureau(t, vfs.NewMem(), nil)
		d.letters("classic", "classic", 4)
		lines := strings.SplitAfter(d.export("dlq", nil), "\n")
		d.declare("full", kind, amqp091.Field{Key: "x-max-length", Value: int64(3)}, amqp091.Field{Key: "x-overflow", Value: "reject-publish"})
		long := `{"body_encoding":"text","body":"` + strings.Repeat("x", 49<<20) + "\"}\n"
		large := `{"body_encoding":"text","body":"` + strings.Repeat("x", 17<<20) + "\"}\n"
		another := `{"body_encoding":"text","body":"x","properties":{"user_id":"ada"}}` + "\n"
		r := d.importInto("full", lines[0]+"nonsense\n"+"\n"+long+large+another+lines[1]+lines[2]+lines[3])
		var at []int
		for _, l := range r.Refused {
			at = append(at, l.Line)
		}
		slices.Sort(at)
		if r.Imported != 3 || !slices.Equal(at, []int{2, 4, 5, 6, 9}) || d.ready("full") != 3 {
			t.Errorf("%s: %d imported, refused %+v", kind, r.Imported, r.Refused)
		}
		d.b.SetAlarm(broker.Disk, true)
		to, _ := letters.As(d.c).Importer("full", false)
		if _, err := d.office.Import(t.Context(), to, strings.NewReader(lines[0]), 16<<20); err == nil || !strings.Contains(err.Error(), "disk") {
			t.Errorf("with an alarm: %v", err)
		}
		if a := d.look(string(broker.Archive)); len(a) != 0 {
			t.Errorf("%d are left in the archive", len(a))
		}
		d.close()
	}
}

func sortLines(list []letter.Line) {
	slices.SortFunc(list, func(a, b letter.Line) int { return bytes.Compare(a.Body, b.Body) })
}

func mark(history []byte) uint64 { return deadletter.HeadSent(history) }

// unsent is a history without Sent, which an export does not keep.
func unsent(history []byte) []byte {
	h, _ := deadletter.Parse(history)
	h.Sent = false
	return h.Append(nil)
}

package office

import (
	"log/slog"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/run/letters"
)

// What the office keeps of a virtual host goes with it: another one of the same name has nothing of it, before and after a restart.
func TestRecordsEndWithTheirVirtualHost(t *testing.T) {
	files := vfs.NewMem()
	d := openDesk(t, files)
	defer func() { d.close() }()
	drops, err := openDrops(d.b, slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	create := func() {
		t.Helper()
		if _, err := d.b.By("").Do(declare.PutVHost{Name: "shop", Change: declare.All(topology.Metadata{}), OnlyNew: true}); err != nil {
			t.Fatal(err)
		}
	}
	drop := func(queue string, incarnation uint64) {
		drops.mu.Lock()
		defer drops.mu.Unlock()
		drops.add([]letters.Drop{{VHost: "shop", Queue: message.QueueName(queue), Incarnation: incarnation, Reason: deadletter.Rejected, Why: "no_dlx", Count: 1}})
	}
	kept := func() (notes, entries, records int) {
		t.Helper()
		list, err := drops.List(t.Context(), DropQuery{})
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{noteKey, dropKey, hourKey} {
			if err := d.b.RangeRecords(kind, func(_, _ []byte) error { records++; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		return len(d.f.notes.of), len(list.Entries) + len(list.Hours), records
	}
	create()
	if _, err := d.f.SetNote("shop", letter.GroupID(7), NoteRequest{Owner: new("ann")}, Actor{Who: "guest"}); err != nil {
		t.Fatal(err)
	}
	drop("orders", 0)
	if n, e, r := kept(); n != 1 || e != 2 || r != 3 {
		t.Fatalf("%d notes, %d of drops, %d records", n, e, r)
	}
	if _, err := d.b.As("guest", "shop").DeclareQueue(topology.QueueDecl{Name: "orders", Durable: true}); err == nil {
		t.Fatal("guest has rights there") // the queue below is declared by the operator
	}
	by := d.b.AsOperator("op", "shop")
	if _, err := by.DeclareQueue(topology.QueueDecl{Name: "orders", Durable: true}); err != nil {
		t.Fatal(err)
	}
	q, err := by.Find("orders", topology.Read)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.b.By("").Do(declare.DeleteVHost{Name: "shop"}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.f.SetNote("shop", letter.GroupID(7), NoteRequest{Owner: new("ann")}, Actor{Who: "guest"}); err == nil {
		t.Error("a group of no virtual host gets a note")
	}
	create()
	drop("orders", q.Incarnation()) // it was dropped in the earlier one, and is told of now
	if n, e, r := kept(); n != 0 || e != 0 || r != 0 {
		t.Errorf("in a new virtual host: %d notes, %d of drops, %d records", n, e, r)
	}
	stray := mutation.Change{Key: append([]byte(datadir.RecordPrefix), appendKey(nil, noteKey, "gone", 7)...), Value: []byte(`{"state":"new","owner":"ann"}`)}
	if err := d.b.PutRecords(mutation.All([]mutation.Change{stray}), true); err != nil {
		t.Fatal(err)
	}
	drops.Close()
	d.close()
	d = openDesk(t, files)
	if drops, err = openDrops(d.b, slog.New(slog.DiscardHandler), time.Now); err != nil {
		t.Fatal(err)
	}
	defer drops.Close()
	if n, e, r := kept(); n != 0 || e != 0 || r != 0 {
		t.Errorf("after a restart: %d notes, %d of drops, %d records", n, e, r)
	}
}

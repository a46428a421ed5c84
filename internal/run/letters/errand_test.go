package letters

import (
	"context"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// An errand on letters that are known is refused for what the look before it is refused for: each slice is checked, since rights and queues change.
func TestWhatAnErrandIsRefusedFor(t *testing.T) {
	c := open(t, broker.Options{})
	for _, name := range []string{"from", "to"} {
		mustDeclare(t, c, name)
	}
	if _, err := As(c).archive(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.DeclareExchange(topology.ExchangeDecl{Name: "inner", Type: routing.Fanout, Durable: true, Internal: true}); err != nil {
		t.Fatal(err)
	}
	clerk := func(name, configure, write, read string) *broker.Connection {
		t.Helper()
		if err := c.Broker().CreateDefault(broker.Default{VHost: "/", User: name, Password: "secret", Configure: configure, Write: write, Read: read}); err != nil {
			t.Fatal(err)
		}
		return c.Broker().As(name, "/")
	}
	reader, writer := clerk("reader", "^$", "^$", ".*"), clerk("writer", "^$", ".*", ".*")
	x := func(name message.ExchangeName) *message.ExchangeName { return &name }
	long := strings.Repeat("x", 256)
	for what, s := range map[string]struct {
		by   *broker.Connection
		from message.QueueName
		e    Errand
		says string // "": it is not refused
	}{
		"a move without a queue":            {c, "from", Errand{Action: Park}, "the queue to move to is missing"},
		"a move to a queue and an exchange": {c, "from", Errand{Action: Park, To: Destination{Queue: "to", Exchange: x("inner")}}, "cannot be combined"},
		"a move to the queue itself":        {c, "from", Errand{Action: Park, To: Destination{Queue: "from"}}, "the queue itself"},
		"a move to no queue":                {c, "from", Errand{Action: Park, To: Destination{Queue: "none"}}, "'none' does not exist"},
		"a move without write":              {reader, "from", Errand{Action: Park, To: Destination{Queue: "to"}}, "refused for user 'reader'"},
		"a move":                            {writer, "from", Errand{Action: Park, To: Destination{Queue: "to"}}, ""},
		"a replay to no exchange":           {c, "from", Errand{Action: Replay, To: Destination{Exchange: x("none")}}, "'none' does not exist"},
		"a replay to an internal exchange":  {c, "from", Errand{Action: Replay, To: Destination{Exchange: x("inner")}}, "internal"},
		"a replay without write":            {reader, "from", Errand{Action: Replay, To: Destination{Exchange: x("amq.fanout")}}, "refused for user 'reader'"},
		"a replay with a long key":          {c, "from", Errand{Action: Replay, To: Destination{Key: &long}}, "at most 255 bytes"},
		"a replay to where they came from":  {reader, "from", Errand{Action: Replay}, ""}, // each letter is asked about
		"a discard of what is discarded":    {c, broker.Archive, Errand{Action: Discard}, "discarded already"},
		"a discard without configure":       {writer, "from", Errand{Action: Discard}, "refused for user 'writer'"},
		"a discard":                         {c, "from", Errand{Action: Discard}, ""},
		"an edit of what is discarded":      {c, broker.Archive, Errand{Action: EditLetter, Stay: true}, "restore the letter first"},
		"an edit without configure":         {writer, "from", Errand{Action: EditLetter, Stay: true}, "refused for user 'writer'"},
		"a restore from elsewhere":          {c, "from", Errand{Action: Restore}, "lies in queue 'bartleby.archive'"},
		"a restore":                         {writer, broker.Archive, Errand{Action: Restore}, ""},
		"a queue that may not be read":      {clerk("blind", ".*", ".*", "^$"), "from", Errand{Action: Park, To: Destination{Queue: "to"}}, "refused for user 'blind'"},
		"a queue that is not there":         {c, "none", Errand{Action: Discard}, "no queue 'none'"},
	} {
		s.e.Choose = func(*queue.View, message.Record, []byte) bool { return true }
		_, _, look := As(s.by).LettersOf(s.from, &s.e, 0)
		_, run := As(s.by).RunErrandOn(context.Background(), s.from, 0, &s.e, nil, nil)
		for how, err := range map[string]error{"the look": look, "the errand": run} {
			if s.says == "" && err != nil || s.says != "" && (err == nil || !strings.Contains(err.Error(), s.says)) {
				t.Errorf("%s, %s: %v", what, how, err)
			}
		}
	}
}

// An archive that a client has made of another kind, while the name was anybody's, takes no letters: it might keep them for ever.
func TestAnArchiveOfAnotherKindIsRefused(t *testing.T) {
	files := vfs.NewMem()
	t.Run("strict", func(t *testing.T) {
		mustDeclare(t, open(t, broker.Options{FS: files, Strict: true}), string(broker.Archive))
	})
	c := open(t, broker.Options{FS: files})
	mustDeclare(t, c, "from")
	e := &Errand{Action: Discard, Choose: func(*queue.View, message.Record, []byte) bool { return true }}
	if _, err := As(c).RunErrandOn(t.Context(), "from", 0, e, nil, nil); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("with such an archive: %v", err)
	}
	if _, err := c.DeleteQueue(broker.Archive, false, false); err != nil {
		t.Fatal(err)
	}
	if _, err := As(c).RunErrandOn(t.Context(), "from", 0, e, nil, nil); err != nil {
		t.Error(err)
	}
}

package shovel

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// BR-8.13: what a broker elsewhere says of who has published a message is kept as a header; what this node has
// checked when it was published is kept as it is.
func TestAUserIDFromElsewhereIsAHeader(t *testing.T) {
	b, err := broker.Open(broker.Options{Dir: "data", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct {
		by, userID string
		local      bool
		kept       bool
	}{
		{by: "pm", userID: "guest"},
		{by: "pm", userID: "guest", local: true, kept: true},
		{by: "pm", userID: "pm", kept: true},
		{by: "", userID: "guest", kept: true}, // whoever runs the node
	} {
		w := &worker{b: b}
		b.Read(func(_ *topology.State, users *auth.Users) { w.setter = b.Setter(topology.Parameter{By: c.by}, users) })
		w.status.from, w.status.to = address{local: c.local}, address{local: true}
		list := []carried{{properties: amqp091.PropertyList{UserID: &c.userID}}}
		w.address(list)
		l := &list[0].properties
		header, _ := l.Headers.Get("x-shovelled-user-id")
		if (l.UserID != nil) != c.kept || !c.kept && header != c.userID || c.kept && header != nil {
			t.Errorf("%+v: user-id kept %t, header %v", c, l.UserID != nil, header)
		}
	}
}

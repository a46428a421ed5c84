package shovel

import (
	"log/slog"
	"testing"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// A shovel that is done deletes the parameter that it was made of, not one that was set in its
// place just before.
func TestAShovelThatIsDoneDeletesNoOther(t *testing.T) {
	b, err := broker.Open(broker.Options{Dir: "data", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest"}); err != nil {
		t.Fatal(err)
	}
	s := &Shovels{Options: Options{Broker: b, Logger: slog.New(slog.DiscardHandler)}}
	put := func(value string) {
		t.Helper()
		if _, err := b.By("").Do(declare.PutParameter{Parameter: topology.Parameter{VHost: "/", Component: Component, Name: "s", Value: []byte(value)}}); err != nil {
			t.Fatal(err)
		}
	}
	is := func() (value string) {
		b.Read(func(st *topology.State, _ *auth.Users) {
			v, _ := st.VHost("/")
			p, _ := v.Parameter(Component, "s")
			value = string(p.Value)
		})
		return value
	}
	put(`"old"`)
	old := &worker{vhost: "/", name: "s", value: is(), log: s.Logger}
	put(`"new"`)
	s.finished(old)
	if got := is(); got != `"new"` {
		t.Errorf("the parameter is %q", got)
	}
	s.finished(&worker{vhost: "/", name: "s", value: is(), log: s.Logger})
	if got := is(); got != "" {
		t.Errorf("its own parameter is still there: %q", got)
	}
}

package api_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/run/broker"
)

// A message that has rotted on disk is not given to whoever asks for it, the others are; where it was put aside, and
// of which queue it was, is listed.
func TestWhatWasSetAsideIsListed(t *testing.T) {
	files := vfs.NewMem()
	open := func() *node {
		b, err := broker.Open(broker.Options{Dir: "data", FS: files, NodeName: "rabbit@test"})
		if err != nil {
			t.Fatal(err)
		}
		return &node{t, b, api.New(api.Options{Broker: b, ClusterName: "peer"}), "guest:guest"}
	}
	n := open()
	err := n.b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Tags: []string{"administrator"}, Configure: ".*", Write: ".*", Read: ".*"})
	if err != nil {
		t.Fatal(err)
	}
	n.must("PUT", "/queues/%2F/q", `{"durable":true}`)
	payload := func(i int) string { return fmt.Sprintf("message %d ", i) + strings.Repeat("x", 500) }
	for i := range 3 {
		n.must("POST", "/exchanges/%2F/amq.default/publish", `{"routing_key":"q","properties":{"delivery_mode":2},"payload":"`+payload(i)+`","payload_encoding":"string"}`)
	}
	if err := errors.Join(n.b.Node().Checkpoint(), n.b.Close()); err != nil {
		t.Fatal(err)
	}
	rot(t, files, payload(1))
	n = open()
	defer func() {
		if err := n.b.Close(); err != nil {
			t.Error(err)
		}
	}()
	same(t, "before it is asked for", n.must("GET", "/set-aside", "").body, "[]")
	got := n.must("POST", "/queues/%2F/q/get", `{"count":5,"ackmode":"ack_requeue_true","encoding":"auto"}`).list(t)
	if len(got) != 2 || got[0]["payload"] != payload(0) || got[1]["payload"] != payload(2) {
		t.Errorf("got %d messages, want the first and the last", len(got))
	}
	list := n.must("GET", "/set-aside", "").list(t)
	if len(list) != 1 {
		t.Fatalf("listed is %v", list)
	}
	same(t, "vhost and queue", []any{list[0]["vhost"], list[0]["queue"]}, []any{"/", "q"})
	if file, _ := list[0]["file"].(string); !strings.HasPrefix(file, "message-") || fmt.Sprint(list[0]["bytes"]) == "0" {
		t.Errorf("listed is %v", list[0])
	}
}

// rot changes a byte of what lies on disk once.
func rot(t *testing.T, files vfs.FS, text string) {
	t.Helper()
	for _, dir := range []string{"data/journal", "data/keep"} {
		names, err := files.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			f, err := files.OpenReadWrite(files.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(f)
			at := bytes.Index(b, []byte(text))
			if err == nil && at >= 0 {
				_, err = f.WriteAt([]byte{'?'}, int64(at)+20)
			}
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			if at >= 0 {
				return
			}
		}
	}
	t.Fatal("it is nowhere on disk")
}

package api_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"bartleby.mq/internal/edge/api"
)

// The audit log has a line when a replay begins, which a node that is killed in the middle leaves, and one
// with its counts when it ends, also if the client went away. A dry run changes nothing and has its end only.
func TestTheAuditLogHasTheCountsOfAReplay(t *testing.T) {
	var log bytes.Buffer
	n := start(t, func(o *api.Options) {
		o.Audit = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
	})
	n.must("PUT", "/queues/%2F/dead", "{}")
	n.must("PUT", "/queues/%2F/other", "{}")
	n.must("POST", "/exchanges/%2F/amq.default/publish", `{"properties":{},"routing_key":"dead","payload":"x","payload_encoding":"string"}`)
	const (
		path   = "/queues/%2F/dead/replay"
		about  = `level=INFO msg="administrative action" user=guest peer=127.0.0.1:1234 method=POST resource=queues/{vhost}/{queue}/replay object.queue=dead object.vhost=/ `
		counts = ` replay.dry_run=false replay.examined=1 replay.matched=0 replay.replayed=0 replay.unroutable=0 replay.refused=0 replay.no_origin=1 replay.gone=0`
	)
	gone, leave := context.WithCancel(t.Context())
	leave()
	for _, c := range []struct {
		body string
		ctx  context.Context
		want []string
	}{
		{"{}", t.Context(), []string{"result=begun", "result=done" + counts + " status=200"}},
		{`{"reason":"rejected","message_id":"a","to_queue":"other"}`, t.Context(), []string{
			"result=begun asked.reason=rejected asked.message_id=a asked.to_queue=other", "result=done asked.reason=rejected asked.message_id=a asked.to_queue=other" + counts + " status=200",
		}},
		{`{"dry_run":true}`, t.Context(), []string{"result=done" + strings.Replace(counts, "false", "true", 1) + " status=200"}},
		{"{}", gone, []string{"result=begun", `result="cut off"` + strings.NewReplacer("=1", "=0").Replace(counts) + " status=500"}},
	} {
		log.Reset()
		n.send(httptest.NewRequest("POST", "/api"+path, strings.NewReader(c.body)).WithContext(c.ctx))
		if got, want := log.String(), about+strings.Join(c.want, "\n"+about)+"\n"; got != want {
			t.Errorf("%s: the log has\n%swant\n%s", c.body, got, want)
		}
	}
}

package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/run/broker"
)

// There are no links of a federation; in strict mode they are not found, as with RabbitMQ without the plugin.
func TestFederationLinks(t *testing.T) {
	for strict, want := range map[bool]int{false: http.StatusOK, true: http.StatusNotFound} {
		b, err := broker.Open(broker.Options{Dir: "data", FS: vfs.NewMem(), Strict: strict})
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/api/federation-links"} {
			w := httptest.NewRecorder()
			api.Local(api.New(api.Options{Broker: b})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if w.Code != want {
				t.Errorf("strict: %v: %s is %d, %s; want %d", strict, path, w.Code, w.Body, want)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

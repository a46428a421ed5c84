package demo

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A demo that was kept goes with a word: somebody may have worked on its letters.
func TestAKeptDemoIsDeletedWithAWord(t *testing.T) {
	for _, c := range []struct {
		status int
		told   bool
	}{{http.StatusOK, true}, {http.StatusNotFound, false}} {
		var deleted bool
		node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.Method {
			case http.MethodGet:
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(`[{"messages": 200}, {"messages": 40}]`))
			case http.MethodDelete:
				deleted = true
				w.WriteHeader(http.StatusNoContent)
			default: // the demo ends here
				w.WriteHeader(http.StatusForbidden)
			}
		}))
		defer node.Close()
		var out strings.Builder
		if err := Run(t.Context(), Options{HTTP: node.URL, Out: &out}); err == nil || !deleted {
			t.Fatal(err, deleted)
		}
		if told := strings.Contains(out.String(), "bartleby-demo is there already, with 240 messages: it is deleted first"); told != c.told {
			t.Errorf("%d: %q", c.status, out.String())
		}
	}
}

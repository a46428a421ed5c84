package demo

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A demo without a node says how to get one, and not what it wanted to do there.
func TestADemoWithoutANodeSaysHowToStartOne(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := "http://" + closed.Addr().String()
	_ = closed.Close()
	var out strings.Builder
	err = Run(t.Context(), Options{HTTP: at + "/", Out: &out})
	if err == nil || !strings.Contains(err.Error(), "no node answers at "+at) || !strings.Contains(err.Error(), "bartleby server") || strings.Contains(err.Error(), "Delete") {
		t.Error(err)
	}
}

// What the demo names to go on with works for its node, wherever that is.
func TestTheDemoNamesItsNode(t *testing.T) {
	for _, c := range []struct {
		options   Options
		want, not string
	}{
		{Options{HTTP: "http://127.0.0.1:15672/", User: "guest", Password: "guest"}, "as user guest, password guest\n", "--url"},
		{Options{HTTP: "http://10.0.0.7:8080/", User: "ada", Password: "secret"}, "bartleby dlq jobs --url http://10.0.0.7:8080\n", "secret"},
	} {
		var out strings.Builder
		c.options.Out = &out
		(&story{Options: c.options}).where()
		if got := out.String(); !strings.Contains(got, c.want) || strings.Contains(got, c.not) || strings.Contains(got, "%!") {
			t.Error(got)
		}
	}
}

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

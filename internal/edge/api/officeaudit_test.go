package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"bartleby.mq/internal/edge/api"
)

// Four hundred letters may go with a virtual host: the audit names who deleted it.
func TestTheAuditNamesWhoDeletedAVirtualHost(t *testing.T) {
	n := withOffice(t)
	n.must("PUT", "/users/ann", `{"password": "ann", "tags": "administrator"}`)
	n.must("PUT", "/vhosts/shop", `{}`)
	n.must("PUT", "/vhosts/depot", `{}`)
	n.as("ann").must("DELETE", "/vhosts/shop", "")
	w := httptest.NewRecorder()
	api.Local(n.handler).ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "/api/vhosts/depot", nil))
	if w.Code != http.StatusNoContent {
		t.Fatal(w.Code, w.Body)
	}
	items := n.must("GET", "/office/audit?what=vhost.deleted", "").object(t)["items"].([]any)
	if len(items) != 2 {
		t.Fatal(items)
	}
	for i, want := range []struct{ vhost, who string }{{"depot", "local"}, {"shop", "ann"}} {
		act := items[i].(map[string]any)
		if act["vhost"] != want.vhost || act["who"] != want.who || act["peer"] == "" {
			t.Errorf("%v, want %+v", act, want)
		}
	}
}

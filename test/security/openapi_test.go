package security

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"bartleby.mq/internal/config"
)

// ApsaraMQ's API is there while there are access keys, which may change while the node
// runs; their secrets are shown to nobody (DL-22.17).
func TestAccessKeys(t *testing.T) {
	t.Parallel()
	const secret = "a secret of sixteen or more"
	const keys = "apsaramq.access_key.ci.id = LTAIci\napsaramq.access_key.ci.user = guest\napsaramq.access_key.ci.secret = "
	n := start(t, keys+secret)
	ask := func() (int, string) {
		t.Helper()
		answer, err := client.Get("http://" + n.s.Addresses().HTTP.String() + "/?Action=ListVirtualHosts")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	if status, body := ask(); status != http.StatusBadRequest || !strings.Contains(body, "MissingAccessKeyId") {
		t.Errorf("with a key: %d %s", status, body)
	}
	if shown := n.must("GET", "/config/effective", nil); strings.Contains(shown, secret) || !strings.Contains(shown, "apsaramq.access_key.ci.secret = "+config.Masked) {
		t.Errorf("the configuration is shown as %s", shown)
	}
	if err := n.s.Reload(configured(t, keys+secret+"!")); err != nil {
		t.Fatal(err)
	}
	if err := n.s.Reload(configured(t, "")); err != nil {
		t.Fatal(err)
	}
	if status, body := ask(); status != http.StatusNotFound {
		t.Errorf("without a key: %d %s", status, body)
	}
	if strings.Contains(n.log.String(), secret) {
		t.Error("the secret is in the log")
	}
}

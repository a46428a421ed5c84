package server

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/auth"
	"bartleby.mq/internal/topology"
	"bartleby.mq/test/certificate"
)

// BR-16.7: definitions are there before the first client; with users of their own
// there is no guest.
func TestDefinitionsAtStart(t *testing.T) {
	files := t.TempDir()
	for name, text := range map[string]string{
		"1.json":     `{"vhosts": [{"name": "/"}], "queues": [{"vhost": "/", "name": "q", "durable": true, "auto_delete": false, "arguments": {}}]}`,
		"ignored.md": `nonsense`,
	} {
		if err := os.WriteFile(filepath.Join(files, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o, _ := options(t.TempDir())
	o.Config.Definitions.Files = []string{files}
	s := mustStart(t, o)
	c := dial(t, s, "guest:guest") // the file names no users
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclarePassive("q", true, false, false, false, nil); err != nil {
		t.Error("the queue of the definitions: ", err)
	}
	_ = c.Close()
	mustStop(t, s)

	users := filepath.Join(files, "users.json")
	if err := os.WriteFile(users, []byte(`{"users": [{"name": "ada", "password": "x", "tags": []}], "vhosts": [{"name": "/"}],
		"permissions": [{"user": "ada", "vhost": "/", "configure": "", "write": "", "read": ""}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	o, _ = options(t.TempDir())
	o.Config.Definitions.Files = []string{users}
	s = mustStart(t, o)
	defer mustStop(t, s)
	_ = dial(t, s, "ada:x").Close()
	if c, err := amqp.Dial("amqp://guest:guest@" + s.Addresses().AMQP[0].String() + "/"); err == nil {
		_ = c.Close()
		t.Error("there is a guest beside the users of the definitions")
	}
}

func TestDefinitionsThatCannotBeRead(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{bad, filepath.Join(t.TempDir(), "missing.json")} {
		o, _ := options(t.TempDir())
		o.Config.Definitions.Files = []string{path}
		s, err := Start(o)
		if err == nil {
			mustStop(t, s)
		}
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("the start with %s: %v, want an error that names it", path, err)
		}
	}
}

// BR-16.7: definitions may come from a URL; what has not changed may be left out.
func TestDefinitionsFromAURL(t *testing.T) {
	ca := certificate.NewAuthority(t, "ca")
	text := `{"vhosts": [{"name": "/"}], "queues": [{"vhost": "/", "name": "q", "durable": true, "auto_delete": false, "arguments": {}}]}`
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
	service.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "service", time.Hour, nil).TLS()}}
	service.StartTLS()
	defer service.Close()
	o, log := options(t.TempDir())
	o.Config.Definitions.URL, o.Config.Definitions.SkipUnchanged = service.URL, true
	if s, err := Start(o); err == nil {
		mustStop(t, s)
		t.Fatal("a service that nobody trusts was believed")
	}
	o.Config.Definitions.TLS.CACertFile = ca.Write(t, t.TempDir())
	queues := func(s *Server) (n int) {
		s.Broker().Read(func(state *topology.State, _ *auth.Users) {
			v, _ := state.VHost("/")
			n = len(v.Queues())
		})
		return n
	}
	for _, want := range []int{1, 0, 1} { // of which the second start finds nothing new
		if want == 1 {
			text += " "
		}
		s := mustStart(t, o)
		if got := queues(s); got != want {
			t.Errorf("%d queues, want %d; the log is %s", got, want, log)
		}
		if want == 1 {
			if _, err := s.Broker().AsOperator("op", "/").DeleteQueue("q", false, false); err != nil {
				t.Fatal(err)
			}
		}
		mustStop(t, s)
	}
}

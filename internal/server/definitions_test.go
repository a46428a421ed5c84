package server

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/topology"
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

// What was imported is read back as it was noted, whatever the sources are called.
func TestTheNoteOfImportsIsReadBack(t *testing.T) {
	o, _ := options(t.TempDir())
	o.Config.Definitions.SkipUnchanged = true
	s := &Server{Options: o}
	sources := []string{"", "options", "/a/b.json", "/a b/<&>\u2028\".json", "\x00", "\xff", "\xfe", `"\xff"`, strings.Repeat("x", 100_000), "https://host/?a=b"}
	for i, source := range sources {
		if err := s.noteImport(source, []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for i, source := range sources {
		if !s.imported(source, []byte{byte(i)}) || s.imported(source, []byte("other")) {
			t.Errorf("%q is not noted as it was", source)
		}
	}
}

// A note that is damaged has the definitions importing definitions again, says so in the log, and is whole afterwards.
func TestADamagedNoteOfImportsIsMadeAnew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "d.json")
	if err := os.WriteFile(file, []byte(`{"vhosts": [{"name": "/"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	o, _ := options(t.TempDir())
	o.Config.Definitions.Files, o.Config.Definitions.SkipUnchanged = []string{file}, true
	mustStop(t, mustStart(t, o))
	path := filepath.Join(o.DataDir, "imported.json")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := []string{"", "null", "[]", "{", "\x00", `{"` + file + `":1}`, "1e999"}
	for n := range good[:len(good)-2] {
		if n%16 == 0 {
			damaged = append(damaged, string(good[:n]))
		}
	}
	for _, text := range damaged {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		log := new(logged)
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
		s := &Server{Options: o}
		if got := s.imports(); len(got) != 0 {
			t.Errorf("%q says %v", text, got)
		}
		if !strings.Contains(log.String(), "importing definitions again") || !strings.Contains(log.String(), path) {
			t.Errorf("%q: the log does not say so: %s", text, log)
		}
		if err := s.noteImport(file, []byte("x")); err != nil || !s.imported(file, []byte("x")) {
			t.Errorf("%q: nothing is noted afterwards: %v", text, err)
		}
	}
	if err := os.WriteFile(path, []byte("null"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustStop(t, mustStart(t, o))
	if now, err := os.ReadFile(path); err != nil || string(now) != string(good) {
		t.Errorf("after a start the note is %q, %v; want %q", now, err, good)
	}
}

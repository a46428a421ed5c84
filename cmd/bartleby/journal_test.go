package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/client/ctl"
	"bartleby.mq/internal/config"
	"bartleby.mq/internal/server"
)

func startNode(t *testing.T, dir string) (*server.Server, *amqp.Channel) {
	t.Helper()
	s, err := server.Start(server.Options{
		DataDir: dir, Config: config.Default(), Logger: slog.New(slog.DiscardHandler), AMQP: []string{"127.0.0.1:0"}, HTTP: "127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := amqp.Dial("amqp://guest:guest@" + s.Addresses().AMQP[0].String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	ch, err := c.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, ch
}

func say(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	c := command("bartleby")
	var b bytes.Buffer
	c.SetOut(&b)
	c.SetErr(&b)
	c.SetArgs(args)
	code = ctl.Execute(context.Background(), c)
	return code, b.String()
}

// The way an operator goes: a node that does not start, what is wrong, what a repair
// would do, the repair, a node that starts; and a backup to start from in its place.
func TestDamageAndBackup(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	backup := filepath.Join(t.TempDir(), "copy")
	s, ch := startNode(t, dir)
	if _, err := ch.QueueDeclare("orders", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"first", "second", "third"} {
		confirm, err := ch.PublishWithDeferredConfirm("", "orders", false, false, amqp.Publishing{DeliveryMode: 2, Body: []byte(body)})
		if err != nil || !confirm.Wait() {
			t.Fatal("not confirmed: ", err)
		}
	}
	if code, out := say(t, "journal", "check", "--data-dir", dir); code != exitCannotLook || !strings.Contains(out, "is in use by process") {
		t.Errorf("beside a running node: %d, %s", code, out)
	}
	if code, out := say(t, "backup", backup, "--data-dir", dir); code != 0 {
		t.Errorf("backup: %d, %s", code, out)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if code, out := say(t, "journal", "check", "--data-dir", dir); code != 0 || !strings.Contains(out, "no damage") {
		t.Errorf("a clean directory: %d, %s", code, out)
	}
	// Nothing a checkpoint has: the frames are what a start reads.
	segments, err := filepath.Glob(filepath.Join(dir, "journal", "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	rotten := false
	for _, path := range segments {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(b, []byte("second")); at >= 0 {
			b[at] = 'S'
			rotten = true
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !rotten {
		t.Fatal("the message is not in the journal")
	}
	code, out := say(t, "journal", "check", "--data-dir", dir, "--json")
	var report struct {
		Damage     []struct{ File string }
		Unreadable []struct{ Queue string }
	}
	if err := json.Unmarshal([]byte(out), &report); code != exitDamage || err != nil || len(report.Damage) == 0 {
		t.Errorf("check --json: %d, %v, %s", code, err, out)
	}
	if code, out := say(t, "journal", "repair", "--data-dir", dir); code != exitCannotLook || !strings.Contains(out, "--skip-frame or --cut") {
		t.Errorf("a repair without a choice: %d, %s", code, out)
	}
	_, out = say(t, "journal", "check", "--data-dir", dir)
	_, hint, _ := strings.Cut(out, "run: bartleby ")
	if code, out := say(t, strings.Fields(hint)...); code != exitDamage || !strings.Contains(out, "--yes does it") {
		t.Errorf("the check says to run %q, which says: %d, %s", hint, code, out)
	}
	if code, out := say(t, "journal", "repair", "--data-dir", dir, "--skip-frame"); code != exitDamage || !strings.Contains(out, "--yes does it") {
		t.Errorf("a dry run: %d, %s", code, out)
	}
	if code, out := say(t, "journal", "repair", "--data-dir", dir, "--skip-frame", "--yes"); code != 0 {
		t.Errorf("the repair: %d, %s", code, out)
	}
	if code, out := say(t, "journal", "dump", "--data-dir", dir); code != 0 || !strings.Contains(out, "orders id") {
		t.Errorf("dump: %d, %s", code, out)
	}
	for place, want := range map[string]int{dir: 2, backup: 3} {
		s, ch := startNode(t, place)
		if q, err := ch.QueueDeclarePassive("orders", true, false, false, false, nil); err != nil || q.Messages != want {
			t.Errorf("%s: %d messages, %v, want %d", place, q.Messages, err, want)
		}
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

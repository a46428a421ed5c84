package older

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/node"
)

var (
	maker   = flag.String("make", "", "a bartleby of the release whose data is to be kept in testdata")
	release = flag.String("release", "", "what that release is called")
)

// The data of each release are two archives: of a node that was stopped, and of one that was killed.
var ends = map[string]func(*node.Node) error{
	"stopped": (*node.Node).Stop,
	"killed":  func(n *node.Node) error { n.Kill(); return nil },
}

func TestDataOfOlderReleasesIsOpened(t *testing.T) {
	if *maker != "" {
		for end, stop := range ends {
			keep(t, *maker, filepath.Join("testdata", *release+"-"+end+".tar.gz"), stop)
		}
	}
	archives, err := filepath.Glob("testdata/*.tar.gz")
	if err != nil || len(archives) == 0 {
		t.Fatal(archives, err)
	}
	bin, err := node.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, archive := range archives {
		name := strings.TrimSuffix(filepath.Base(archive), ".tar.gz")
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := unpack(archive, dir); err != nil {
				t.Fatal(err)
			}
			// What this release writes is read back, too: by a start, and after a kill.
			for _, again := range []bool{false, true} {
				n, err := node.Start(node.Options{Bin: bin, Dir: dir})
				if err != nil {
					log, _ := os.ReadFile(filepath.Join(dir, "log"))
					t.Fatalf("%v\n%s", err, log)
				}
				look(t, n, again)
				lookDelayed(t, n)
				n.Kill()
			}
		})
	}
}

// keep has a node of a release filled, ends it and packs its data.
func keep(t *testing.T, bin, archive string, end func(*node.Node) error) {
	t.Helper()
	dir := t.TempDir()
	n, err := node.Start(node.Options{Bin: bin, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, n)
	if err = errors.Join(end(n), pack(dir, archive)); err != nil {
		t.Fatal(err)
	}
}

// must returns v, and ends the test if there is an error.
func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func channel(t *testing.T, n *node.Node, vhost string) *amqp.Channel {
	t.Helper()
	c := must[*amqp.Connection](t)(amqp.DialConfig("amqp://guest:guest@"+n.AMQP, amqp.Config{Vhost: vhost}))
	t.Cleanup(func() { _ = c.Close() })
	ch := must[*amqp.Channel](t)(c.Channel())
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return ch
}

// api asks the management API, and decodes its answer into out unless that is nil.
func api(t *testing.T, n *node.Node, method, path, body string, out any) {
	t.Helper()
	r := must[*http.Request](t)(http.NewRequestWithContext(context.Background(), method, "http://"+n.HTTP+"/api"+path, strings.NewReader(body)))
	r.SetBasicAuth("guest", "guest")
	r.Header.Set("Content-Type", "application/json")
	a := must[*http.Response](t)(http.DefaultClient.Do(r))
	defer func() { _ = a.Body.Close() }()
	text := must[[]byte](t)(io.ReadAll(a.Body))
	if a.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %s", method, path, a.Status, text)
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			t.Fatal(err)
		}
	}
}

func publish(t *testing.T, ch *amqp.Channel, exchange, key string, m amqp.Publishing) {
	t.Helper()
	m.DeliveryMode = amqp.Persistent
	c := must[*amqp.DeferredConfirmation](t)(ch.PublishWithDeferredConfirmWithContext(context.Background(), exchange, key, false, false, m))
	if !c.Wait() {
		t.Fatalf("the message to %s was refused", key)
	}
}

func text(format string, args ...any) amqp.Publishing {
	return amqp.Publishing{Body: fmt.Appendf(nil, format, args...)}
}

// large is the body of a message that is too large for a page of anything.
var large = strings.Repeat("0123456789", 40_000)

// The queues, and what they are declared with.
var queues = map[string]amqp.Table{
	"classic":    {"x-dead-letter-exchange": "dlx"},
	"quorum":     {"x-queue-type": "quorum", "x-dead-letter-exchange": "dlx"},
	"priorities": {"x-max-priority": int32(5)},
	"graves":     {},
	"delayed":    {"x-queue-type": "quorum", "x-delayed-retry-type": "all", "x-delayed-retry-min": int64(1000 * 3600 * 24 * 365 * 100)},
	"held": {"x-queue-type": "quorum", "x-dead-letter-exchange": "full", "x-dead-letter-strategy": "at-least-once",
		"x-overflow": "reject-publish"},
	"full": {"x-max-length": int32(1), "x-overflow": "reject-publish"},
	// Ten years are the longest TTL there is: from 2036 on this queue is to be left out.
	"lives": {"x-message-ttl": int64(315_360_000_000)},
}

// fill declares something of every kind and publishes messages. What look expects is what it has left.
func fill(t *testing.T, n *node.Node) {
	t.Helper()
	api(t, n, "PUT", "/vhosts/shop", `{"description":"a shop","tags":["a","b"]}`, nil)
	api(t, n, "PUT", "/users/ops", `{"password":"secret","tags":"monitoring"}`, nil)
	api(t, n, "PUT", "/permissions/shop/ops", `{"configure":"^a","write":"^b","read":".*"}`, nil)
	api(t, n, "PUT", "/permissions/shop/guest", `{"configure":".*","write":".*","read":".*"}`, nil)
	api(t, n, "PUT", "/policies/shop/long", `{"pattern":"^classic$","definition":{"max-length":1000},"priority":3,"apply-to":"queues"}`, nil)
	api(t, n, "PUT", "/vhost-limits/shop/max-queues", `{"value":100}`, nil)
	ch := channel(t, n, "shop")
	for _, x := range []struct{ name, kind string }{{"dlx", "fanout"}, {"events", "topic"}, {"full", "fanout"}} {
		if err := ch.ExchangeDeclare(x.name, x.kind, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := ch.ExchangeDeclare("later", "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "topic"}); err != nil {
		t.Fatal(err)
	}
	for name, args := range queues {
		must[amqp.Queue](t)(ch.QueueDeclare(name, true, false, false, false, args))
	}
	for _, b := range []struct{ queue, key, exchange string }{{"graves", "", "dlx"}, {"classic", "orders.#", "events"}, {"full", "", "full"}} {
		if err := ch.QueueBind(b.queue, b.key, b.exchange, false, amqp.Table{"x": "y"}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		publish(t, ch, "events", "orders.new", amqp.Publishing{
			Body: fmt.Appendf(nil, "classic %d", i), ContentType: "text/plain", MessageId: fmt.Sprint("id", i), Headers: amqp.Table{"n": int64(i), "t": amqp.Table{"in": "side"}},
		})
		publish(t, ch, "", "quorum", text("quorum %d", i))
		publish(t, ch, "", "priorities", amqp.Publishing{Body: fmt.Appendf(nil, "priority %d", i), Priority: uint8(i)})
		publish(t, ch, "", "lives", text("lives %d", i))
	}
	publish(t, ch, "", "lives", text("%s", large))
	for _, name := range []string{"classic", "quorum"} { // the first dies, the second came back
		for i := range 2 {
			d, _, err := ch.Get(name, false)
			if err = errors.Join(err, d.Reject(i == 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish(t, ch, "", "delayed", text("delayed"))
	must[amqp.Delivery](t)(first(ch.Get("delayed", false)))
	for i := range 2 {
		publish(t, ch, "later", "orders", amqp.Publishing{Body: fmt.Appendf(nil, "later %d", i), Headers: amqp.Table{"x-delay": int64(1000 * 3600 * 24 * 365 * 100)}})
	}
	publish(t, ch, "full", "", text("fills"))
	for i := range 2 {
		publish(t, ch, "", "held", text("held %d", i))
		d := must[amqp.Delivery](t)(first(ch.Get("held", false)))
		if err := d.Reject(false); err != nil {
			t.Fatal(err)
		}
	}
	if err := ch.Nack(uint64(5), false, true); err != nil { // that of delayed, which was the fifth
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		graves := must[amqp.Queue](t)(ch.QueueDeclarePassive("graves", true, false, false, false, nil))
		if graves.Messages == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("graves has %d messages, want 2", graves.Messages)
		}
	}
	// A client has one of each when the node ends.
	for _, name := range []string{"classic", "quorum"} {
		must[amqp.Delivery](t)(first(ch.Get(name, false)))
	}
}

func first(d amqp.Delivery, ok bool, err error) (amqp.Delivery, error) {
	if err == nil && !ok {
		err = errors.New("the queue is empty")
	}
	return d, err
}

// look compares what is there with what fill has left.
func look(t *testing.T, n *node.Node, again bool) {
	t.Helper()
	ch := channel(t, n, "shop")
	for name, args := range queues {
		must[amqp.Queue](t)(ch.QueueDeclare(name, true, false, false, false, args)) // they are the same
	}
	var user struct {
		Tags []string `json:"tags"`
	}
	api(t, n, "GET", "/users/ops", "", &user)
	if !slices.Equal(user.Tags, []string{"monitoring"}) {
		t.Errorf("the user has the tags %q", user.Tags)
	}
	var policies []struct {
		Name       string         `json:"name"`
		Priority   int            `json:"priority"`
		Definition map[string]any `json:"definition"`
	}
	api(t, n, "GET", "/policies/shop", "", &policies)
	if len(policies) != 1 || policies[0].Priority != 3 || policies[0].Definition["max-length"] != 1000.0 {
		t.Errorf("the policies are %+v", policies)
	}
	var bindings []struct {
		Arguments map[string]any `json:"arguments"`
	}
	api(t, n, "GET", "/bindings/shop/e/events/q/classic", "", &bindings)
	if len(bindings) != 1 || bindings[0].Arguments["x"] != "y" {
		t.Errorf("the bindings are %+v", bindings)
	}
	// What came back, as it was rejected or its client went, is redelivered; a quorum queue hands it out first and again
	// in the order in which it came back.
	want := map[string][]string{
		"classic":    {"classic 1 again", "classic 2", "classic 3"},
		"quorum":     {"quorum 1 again", "quorum 2", "quorum 3"},
		"priorities": {"priority 3", "priority 2", "priority 1", "priority 0"},
		"lives":      {"lives 0", "lives 1", "lives 2", "lives 3", large},
		"graves":     {"classic 0 again", "quorum 0 again"}, // they have failed once
		"full":       {"fills"},
	}
	for name, bodies := range want {
		var got []string
		for {
			d, ok, err := ch.Get(name, false)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			body := string(d.Body)
			switch {
			case again || name == "full": // this test has had them
			case d.Redelivered:
				body += " again"
			}
			if name == "graves" {
				deaths, _ := d.Headers["x-death"].([]any)
				if len(deaths) != 1 || deaths[0].(amqp.Table)["reason"] != "rejected" || d.Headers["x-first-death-queue"] != strings.Fields(body)[0] {
					t.Errorf("the history of %q is %v", body, d.Headers)
				}
			}
			if name == "classic" && (d.ContentType != "text/plain" || d.MessageId != "id"+body[8:9] || d.Headers["t"].(amqp.Table)["in"] != "side") {
				t.Errorf("%q has the properties %+v", body, d)
			}
			got = append(got, body)
		}
		if again {
			for i := range bodies {
				bodies[i] = strings.TrimSuffix(bodies[i], " again")
			}
		}
		if name == "graves" {
			slices.Sort(got) // they died in two logs
		}
		if !slices.Equal(got, bodies) {
			t.Errorf("%s has %.80q, want %.80q", name, got, bodies)
		}
	}
	var q struct {
		Delayed int `json:"messages_delayed"`
		Ready   int `json:"messages_ready"`
		Held    int `json:"messages_dlx"`
	}
	api(t, n, "GET", "/queues/shop/"+url.PathEscape("delayed"), "", &q)
	if q.Delayed != 1 || q.Ready != 0 {
		t.Errorf("delayed has %d delayed and %d ready, want 1 and 0", q.Delayed, q.Ready)
	}
	api(t, n, "GET", "/queues/shop/held", "", &q)
	if q.Held != 2 {
		t.Errorf("held has %d that must arrive, want 2", q.Held)
	}
}

// lookDelayed looks whether what fill has published with a delay waits for its moment.
func lookDelayed(t *testing.T, n *node.Node) {
	t.Helper()
	var x struct {
		Type      string         `json:"type"`
		Arguments map[string]any `json:"arguments"`
		Delayed   int            `json:"messages_delayed"`
	}
	api(t, n, "GET", "/exchanges/shop/later", "", &x)
	if x.Type != "x-delayed-message" || x.Arguments["x-delayed-type"] != "topic" || x.Delayed != 2 {
		t.Errorf("the exchange that delays messages is %+v, and 2 messages wait there", x)
	}
}

// pack makes an archive of a data directory.
func pack(dir, archive string) (err error) {
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		return err
	}
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, _ := gzip.NewWriterLevel(f, gzip.BestCompression)
	w := tar.NewWriter(z)
	data := os.DirFS(dir)
	err = fs.WalkDir(data, "data", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() && !d.IsDir() { // a socket
			return err
		}
		if d.IsDir() {
			return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path + "/", Mode: 0o700})
		}
		b, err := fs.ReadFile(data, path)
		if err == nil {
			err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o600, Size: int64(len(b))})
		}
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	})
	return errors.Join(err, w.Close(), z.Close())
}

// unpack undoes pack.
func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o700)
		} else if h.Typeflag == tar.TypeReg {
			if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
				var b []byte
				if b, err = io.ReadAll(r); err == nil {
					err = os.WriteFile(path, b, 0o600)
				}
			}
		}
		if err != nil {
			return err
		}
	}
}

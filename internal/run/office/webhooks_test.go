package office

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/wire/amqp091"
)

// listener is a server that webhooks tell.
type listener struct {
	*httptest.Server
	mu     sync.Mutex
	got    []hookMessage
	status atomic.Int32
	bodies [][]byte
	signed []string
}

func newListener(t *testing.T) *listener {
	l := &listener{}
	l.status.Store(200)
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m hookMessage
		if err == nil {
			err = json.Unmarshal(body, &m)
		}
		if err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s, %v: %s", r.Method, err, body)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.got, l.bodies, l.signed = append(l.got, m), append(l.bodies, body), append(l.signed, r.Header.Get("Bartleby-Signature"))
		if code := int(l.status.Load()); code == http.StatusFound {
			http.Redirect(w, r, l.URL+"/elsewhere", code)
		} else {
			w.WriteHeader(code)
		}
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *listener) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.got)
}

func (l *listener) events() (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.got {
		list = append(list, l.got[i].Event)
	}
	return list
}

const hookSecret = "0123456789abcdef"

func (d *chancery) hook(name, url string, events ...string) {
	d.t.Helper()
	if _, _, err := d.hooks.Put(Webhook{Name: name, URL: url, Events: events, Secret: hookSecret, On: true}, Actor{Who: "guest"}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *chancery) shown(name string) WebhookShown {
	d.t.Helper()
	w, err := d.hooks.Webhook(name)
	if err != nil {
		d.t.Fatal(err)
	}
	return w
}

// A webhook is told of the events that it wants, with a signature, and of others not.
func TestAWebhookIsTold(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	l := newListener(t)
	d.hook("pager", l.URL, "queue.created", "job.*")
	d.declare("a", "classic")
	d.b.Notify("job.done", func() amqp091.Table {
		return amqp091.Table{fact("id", int64(7)), fact("vhost", "/"), fact("queues", amqp091.Array{"a"}), fact("ok", true)}
	})
	d.b.Notify("alarm.set", func() amqp091.Table { return nil })
	d.eventually("it is told", func() bool { return l.count() == 2 && d.shown("pager").Delivered == 2 })
	if e := l.events(); e[0] != "queue.created" || e[1] != "job.done" {
		t.Errorf("%v", e)
	}
	facts := l.got[1].Facts.(map[string]any)
	if facts["id"] != 7.0 || facts["ok"] != true || facts["queues"].([]any)[0] != "a" || l.got[1].ID == l.got[0].ID || l.got[1].Node != d.b.NodeName || l.got[1].Time == 0 {
		t.Errorf("%+v", l.got[1])
	}
	for i, s := range l.signed {
		at, _, _ := strings.Cut(strings.TrimPrefix(s, "t="), ",")
		seconds, err := strconv.ParseInt(at, 10, 64)
		if err != nil || s != Signature(hookSecret, seconds, l.bodies[i]) || time.Since(time.Unix(seconds, 0)) > time.Minute {
			t.Errorf("signature %q", s)
		}
	}
	if Signature(hookSecret, 1, []byte("x")) == Signature(hookSecret, 2, []byte("x")) || Signature(hookSecret, 1, []byte("x")) == Signature(hookSecret+"x", 1, []byte("x")) {
		t.Error("the signature does not depend on time and secret")
	}
	if text, _ := json.Marshal(d.hooks.List()); strings.Contains(string(text), hookSecret) {
		t.Error("the secret is shown")
	}
	if w := d.shown("pager"); w.Waiting != 0 || w.Failed != 0 || w.LastError != "" {
		t.Errorf("%+v", w)
	}
}

// A message is tried eight times, with growing pauses, and has failed then. What waits outlives a restart and is the same message.
func TestAWebhookThatFails(t *testing.T) {
	fs := vfs.NewMem()
	d := openChancery(t, fs, 0)
	l := newListener(t)
	l.status.Store(500)
	d.hook("pager", l.URL, "job.done")
	d.b.Notify("job.done", func() amqp091.Table { return amqp091.Table{fact("id", int64(1))} })
	tried := func(n int) {
		t.Helper()
		d.eventually(fmt.Sprint("tries: ", n), func() bool { return l.count() == n })
	}
	tried(1)
	for i, pause := range tellPauses {
		if i == 3 {
			d.eventually("it is answered", func() bool { return d.hookFree("pager") }) // what is cut before its answer is tried again at once
			d.shutDown()
			d = openChancery(t, fs, d.ahead.Load())
		}
		d.eventually("it waits", func() bool { return d.hookFree("pager") })
		if w := d.shown("pager"); w.Waiting != 1 || w.LastError != "the answer was 500 Internal Server Error" || w.Failed != 0 {
			t.Fatalf("after %d tries: %+v", i+1, w)
		}
		d.ahead.Add(pause.Milliseconds() - 2000)
		d.hooks.poke()
		if l.count() != i+1 {
			t.Fatalf("try %d came too early", i+2)
		}
		d.ahead.Add(4000)
		d.hooks.poke()
		tried(i + 2)
	}
	d.eventually("it has failed", func() bool { w := d.shown("pager"); return w.Failed == 1 && w.Waiting == 0 })
	if len(tellPauses)+1 != 8 || l.got[0].ID != l.got[7].ID || string(l.bodies[0]) != string(l.bodies[7]) || l.signed[0] == l.signed[7] {
		t.Error("the tries are not the same message, signed anew")
	}
	l.status.Store(302)
	d.ahead.Add(10_000)
	d.b.Notify("job.done", func() amqp091.Table { return nil })
	d.eventually("a redirect is no success", func() bool { return d.shown("pager").LastError == "the answer was 302 Found" })
	if l.count() != 9 {
		t.Errorf("a redirect was followed: %d requests", l.count())
	}
}

func (d *chancery) hookFree(name string) bool {
	d.hooks.mu.Lock()
	defer d.hooks.mu.Unlock()
	k := d.hooks.hooks[name]
	return !k.busy && len(k.waiting) == 1 && k.waiting[0].due > d.hooks.now()
}

// A message whose answer has come when the node stops is delivered: the next start does not tell of it again.
func TestAnAnswerCountsWhileTheNodeStops(t *testing.T) {
	fs := vfs.NewMem()
	d := openChancery(t, fs, 0)
	l := newListener(t)
	d.hooks.client.Transport = stopsAfter{d.hooks.client.Transport, d.hooks.end}
	d.hook("pager", l.URL, "job.done")
	d.b.Notify("job.done", func() amqp091.Table { return amqp091.Table{fact("id", int64(1))} })
	d.eventually("it is told", func() bool { return d.hooks.life.Err() != nil })
	d.shutDown()
	d = openChancery(t, fs, 0)
	if w := d.shown("pager"); l.count() != 1 || w.Delivered != 1 || w.Waiting != 0 {
		t.Errorf("told %d times, %+v", l.count(), w)
	}
}

// stopsAfter is a transport that begins the end of the node when an answer has come.
type stopsAfter struct {
	http.RoundTripper
	stop func()
}

func (s stopsAfter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(r)
	s.stop()
	return resp, err
}

// What waits for a webhook is bounded, and what does not fit has failed; a webhook that was removed has nothing left in the store.
func TestWhatWaitsForAWebhookIsBounded(t *testing.T) {
	fs := vfs.NewMem()
	d := openChancery(t, fs, 0)
	d.hook("off", "http://127.0.0.1:1/", "job.done")
	tell := func(n int) {
		for range n {
			d.b.Notify("job.done", func() amqp091.Table { return amqp091.Table{fact("id", int64(1))} })
			d.hooks.note()
		}
	}
	tell(1)
	d.eventually("it has failed once", func() bool { return d.shown("off").LastError != "" })
	tell(maxHookWaiting + 9)
	if w := d.shown("off"); w.Waiting != maxHookWaiting || w.Failed != 10 || !strings.Contains(w.LastError, "1000 messages wait") {
		t.Errorf("%+v", w)
	}
	d.b.Notify("job.done", func() amqp091.Table { return amqp091.Table{fact("text", strings.Repeat("x", maxTellBytes))} })
	d.hooks.note()
	if w := d.shown("off"); w.Failed != 11 {
		t.Errorf("%+v", w)
	}
	if err := d.hooks.Remove("off", Actor{}); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{hookPrefix, tellPrefix} {
		if err := d.b.RangeRecords(kind, func(key, _ []byte) error { return fmt.Errorf("%q is left", key) }); err != nil {
			t.Error(err)
		}
	}
	if d.hooks.wants("job.done") {
		t.Error("events are wanted for nobody")
	}
}

// Addresses of this machine and its link are refused when they are dialled, in whatever form they are written.
func TestWebhooksDoNotReachThisMachine(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8::7")}
	for text, local := range map[string]bool{
		"127.0.0.1": true, "127.8.8.8": true, "::1": true, "::ffff:127.0.0.1": true, "169.254.169.254": true, "fe80::1%eth0": true, "0.0.0.0": true, "0.1.2.3": true, "::": true,
		"64:ff9b::7f00:1": true, "2002:7f00:1::": true, "::127.0.0.1": true, "224.0.0.1": true, "ff02::1": true, "64:ff9b::a9fe:a9fe": true,
		"64:ff9b:1::7f00:1": true, "64:ff9b:1:7f00:0:100::": true, "64:ff9b:1:ff7f:0:1::": true, "::ffff:0:127.0.0.1": true, "fd00:ec2::254": true, "100.100.100.200": true, "64:ff9b::6464:64c8": true,
		"198.51.100.7": true, "::ffff:198.51.100.7": true, "2001:db8::7": true, "64:ff9b::c633:6407": true,
		"198.51.100.8": false, "2001:db8::8": false, "100.100.100.201": false, "::ffff:0:8.8.8.8": false, "64:ff9b:1::808:808": false, "64:ff9b:1:808:8:800::": false,
		"10.1.2.3": false, "192.168.0.1": false, "8.8.8.8": false, "2001:4860:4860::8888": false, "64:ff9b::808:808": false, "fd00::1": false,
	} {
		if isLocal(netip.MustParseAddr(text), own) != local {
			t.Errorf("%s: local is not %t", text, local)
		}
	}
	d := openChancery(t, vfs.NewMem(), 0)
	l := newListener(t)
	d.hook("here", l.URL)
	if got, err := d.hooks.Test(t.Context(), "here", Actor{Who: "guest"}); err != nil || !got.Delivered || got.Status != 200 || l.events()[0] != "webhook.test" {
		t.Errorf("%+v, %v", got, err)
	}
	d.hooks.local.Store(false)
	d.hooks.client.CloseIdleConnections()
	for _, url := range []string{l.URL, strings.Replace(l.URL, "127.0.0.1", "localhost", 1)} {
		d.hook("here", url)
		if got, err := d.hooks.Test(t.Context(), "here", Actor{Who: "guest"}); err != nil || got.Delivered || !strings.Contains(got.Error, "webhooks.allow_local") {
			t.Errorf("%s: %+v, %v", url, got, err)
		}
	}
	if l.count() != 1 {
		t.Error("it was reached")
	}
	mine, err := ownAddresses()
	if err != nil || len(mine) == 0 {
		t.Fatal(mine, err)
	}
	for _, a := range mine {
		if err := d.hooks.mayDial(netip.AddrPortFrom(a, 80).String()); err == nil {
			t.Errorf("%s is an address of this machine, and may be dialled", a)
		}
	}
}

// What is of a virtual host ends with it: its jobs, also those that wait to begin, and the webhooks that are told of it alone. One that is made again under
// the name has none of them, also after a restart, and the audit tells what was the other one's.
func TestWhatIsOfAVirtualHostEndsWithIt(t *testing.T) {
	fs := vfs.NewMem()
	d := openChancery(t, fs, 0)
	l := newListener(t)
	for _, vhost := range []string{"shop", ""} {
		if _, _, err := d.hooks.Put(Webhook{Name: "of " + vhost, URL: l.URL, VHost: vhost, Events: []string{"queue.created"}, Secret: hookSecret, On: true}, Actor{Who: "guest"}); err != nil {
			t.Fatal(err)
		}
	}
	mustHave := func() *broker.Connection {
		t.Helper()
		if _, err := d.b.By("").Do(declare.PutVHost{Name: "shop", Change: declare.All(topology.Metadata{}), OnlyNew: true}); err != nil {
			t.Fatal(err)
		}
		c := d.b.AsOperator("op", "shop")
		if _, err := c.DeclareQueue(topology.QueueDecl{Name: "q", Durable: true}); err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := mustHave()
	d.eventually("both are told", func() bool { return l.count() == 2 })
	request := Request{Action: letters.Replay, VHost: "shop", Queue: "q", How: How{ScheduleMS: d.f.now() + 3_600_000}, By: Actor{Who: "op"}}
	plan, err := d.jobs.Dry(t.Context(), c, &request)
	if err != nil {
		t.Fatal(err)
	}
	request.Token, request.Count = plan.Token, new(plan.Count)
	job, err := d.jobs.Start(t.Context(), c, &request)
	if err != nil || job.State != Planned {
		t.Fatalf("%+v, %v", job, err)
	}
	if _, err := d.b.By("").Do(declare.DeleteVHost{Name: "shop"}); err != nil {
		t.Fatal(err)
	}
	mustHave()
	d.eventually("the other is told", func() bool { return d.shown("of ").Delivered == 2 })
	check := func() {
		t.Helper()
		if j := d.job(job.ID); j.State != Cancelled || !j.Outlived || j.Why != "its virtual host was deleted" {
			t.Errorf("%+v", j)
		}
		if w := d.shown("of shop"); w.On || w.Delivered != 1 || w.LastError != "virtual host 'shop' was deleted" {
			t.Errorf("%+v", w)
		}
		vhost := "shop"
		acts, _, err := d.f.Audit().List(ActQuery{VHost: &vhost})
		if err != nil || len(acts) < 2 || acts[0].What != vhostEnded {
			t.Fatalf("%+v, %v", acts, err)
		}
		for i := range acts {
			if !d.f.Audit().Outlived(&acts[i]) {
				t.Errorf("%+v", acts[i])
			}
		}
	}
	check()
	d.shutDown()
	d = openChancery(t, fs, 0)
	check()
	d.f.Record(Act{What: "vhost.changed", VHost: "shop"})
	vhost := "shop"
	if acts, _, _ := d.f.Audit().List(ActQuery{VHost: &vhost}); d.f.Audit().Outlived(&acts[0]) {
		t.Errorf("%+v", acts[0])
	}
}

// Wrong webhooks are refused.
func TestWrongWebhooks(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	for want, w := range map[string]Webhook{
		"its name":              {URL: "http://x/", Secret: hookSecret},
		"must begin with":       {Name: "a", URL: "ftp://x/", Secret: hookSecret},
		"must begin with https": {Name: "a", URL: "http:///x", Secret: hookSecret},
		"no user":               {Name: "a", URL: "http://u:p@x/", Secret: hookSecret},
		"secret must":           {Name: "a", URL: "http://x/", Secret: "short"},
		"behind #":              {Name: "a", URL: "http://x/#y", Secret: hookSecret},
		"an event is":           {Name: "a", URL: "http://x/", Secret: hookSecret, Events: []string{""}},
		"'leter.#'; there are":  {Name: "a", URL: "http://x/", Secret: hookSecret, Events: []string{"job.*", "leter.#"}},
	} {
		if _, _, err := d.hooks.Put(w, Actor{Who: "guest"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for i := range maxHooks {
		d.hook(fmt.Sprint(i), "http://x.invalid/")
	}
	if _, _, err := d.hooks.Put(Webhook{Name: "more", URL: "http://x.invalid/", Secret: hookSecret}, Actor{Who: "guest"}); err == nil {
		t.Error("there is no bound")
	}
	if _, created, err := d.hooks.Put(Webhook{Name: "1", URL: "http://y.invalid/"}, Actor{Who: "guest"}); err != nil || created {
		t.Errorf("without a secret the one that it has is kept: %v", err)
	}
}

// The events that a webhook may ask for are those that the documentation has, and the code makes no other.
func TestAllEventsAreKnown(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/user/events.md")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for row := range strings.Lines(string(doc)) {
		if cells := strings.Split(row, "|"); len(cells) > 2 {
			for _, m := range regexp.MustCompile("`([a-z]+(\\.[a-z]+)+)`").FindAllStringSubmatch(cells[1], -1) {
				if !strings.HasPrefix(m[1], "event_exchange") && m[1] != "webhooks.allow_local" {
					told = append(told, m[1])
				}
			}
		}
	}
	slices.Sort(told)
	if !slices.Equal(told, eventNames) {
		t.Errorf("the documentation has\n%v, the code\n%v", told, eventNames)
	}
	made := map[string]bool{groupEvent: true, thresholdEvent: true, "job.started": true}
	for _, name := range jobEvents {
		made[name] = true
	}
	notify := regexp.MustCompile(`(?:Notify|about|done|notifyBinding|notifyKey)\("([a-z.]+)"|key :?= "([a-z]+\.[a-z.]+)"`)
	for _, file := range []string{"../broker/*.go", "*.go", "../../edge/*/*.go"} {
		names, err := filepath.Glob(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(name, "_test.go") {
				for _, m := range notify.FindAllStringSubmatch(string(text), -1) {
					made[m[1]+m[2]] = true
				}
			}
		}
	}
	for name := range made {
		if !slices.Contains(eventNames, name) {
			t.Errorf("event %s is made, and no webhook may ask for it", name)
		}
	}
	for _, name := range eventNames {
		if !made[name] {
			t.Errorf("nothing makes the event %s", name)
		}
	}
}

// Patterns are those of a topic exchange.
func TestPatternsOfEvents(t *testing.T) {
	for _, c := range []struct {
		pattern, key string
		want         bool
	}{
		{"job.done", "job.done", true}, {"job.*", "job.done", true}, {"job.*", "job", false}, {"job.#", "job", true}, {"#", "a.b.c", true}, {"*", "a.b", false},
		{"#.done", "x.y.done", true}, {"#.done", "x.y.don", false}, {"letter.*.created", "letter.group.created", true}, {"#.#.#", "", true}, {"a.#.b.#.c", "a.b.b.c", true},
	} {
		if got := (&Webhook{On: true, Events: []string{c.pattern}}).wants(c.key); got != c.want {
			t.Errorf("%s, %s: %t", c.pattern, c.key, got)
		}
	}
	if (&Webhook{Events: []string{"#"}}).wants("a") {
		t.Error("a webhook that is off is told")
	}
}

// A rule tells its webhook of each letter once, also over a restart; letters stay, and the rules behind it see them.
func TestARuleTellsAWebhookOnce(t *testing.T) {
	fs := vfs.NewMem()
	d := openChancery(t, fs, 0)
	d.letters("classic", "classic", 3)
	d.declare("park", "classic")
	l := newListener(t)
	d.hook("desk", l.URL)
	toldOf := func() (n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for i := range l.got {
			facts := l.got[i].Facts.(map[string]any)
			if l.got[i].Event != ruleEvent || facts["rule"] != "tell" || facts["queue"] != "dlq" || facts["vhost"] != "/" {
				t.Errorf("%+v", l.got[i])
			}
			for _, row := range facts["letters"].([]any) {
				if row.(map[string]any)["preview"] != "" {
					t.Error("it shows what is in the letter")
				}
				n++
			}
		}
		return n
	}
	d.put(Rule{Name: "tell", On: true, Queues: "^dlq$", Action: RuleWebhook, Webhook: "desk", Last: new(bool)}, Rule{Name: "park", On: true, Action: RuleSend, ToQueue: "park", AfterMS: 60_000, Queues: "^dlq$"})
	d.eventually("it is told", func() bool { return toldOf() == 3 && d.shown("desk").Waiting == 0 }) // what is cut before its answer is told again
	d.shutDown()
	d = openChancery(t, fs, 0)
	d.work()
	d.more(3, 2)
	d.work()
	d.eventually("it is told of two more", func() bool { return toldOf() == 5 && d.rule("tell").Acted == 5 })
	d.pass(120_000)
	if d.ready("park") != 5 || toldOf() != 5 || d.rule("tell").LastMS == 0 {
		t.Errorf("%d are parked, %d letters told of", d.ready("park"), toldOf())
	}
	w := d.hooks.hooks["desk"].Webhook
	w.On = false
	if _, _, err := d.hooks.Put(w, Actor{Who: "guest"}); err != nil {
		t.Fatal(err)
	}
	d.ahead.Store(0) // the next letter is not parked at once
	d.more(5, 1)
	d.rules.watch.step()
	if r := d.rule("tell"); r.Why != "webhook 'desk' is off" || r.Acted != 5 {
		t.Errorf("%+v", r)
	}
	w.On = true
	if _, _, err := d.hooks.Put(w, Actor{Who: "guest"}); err != nil {
		t.Fatal(err)
	}
	d.ahead.Add(tryAgain.Milliseconds())
	d.work()
	d.eventually("it is told of what came meanwhile", func() bool { return toldOf() == 6 })
}

// A webhook that is off, or full, stops its own rule only: other rules go on, and keep to their order. When it can be told it is told of what is still
// there, of each letter once, also over a restart.
func TestAWebhookThatCannotBeToldStopsNoOtherRule(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		for _, why := range []string{"off", "full"} {
			t.Run(kind+" "+why, func(t *testing.T) {
				fs := vfs.NewMem()
				open := func(ahead int64) *chancery {
					d := openChancery(t, fs, ahead)
					if why == "off" {
						d.f.timeUp = func() bool { return true } // each look ends between two rules
					}
					return d
				}
				d := open(0)
				d.letters(kind, kind, 2)
				d.declare("park", kind)
				l := newListener(t)
				d.hook("desk", l.URL)
				told := func() (n int) {
					l.mu.Lock()
					defer l.mu.Unlock()
					for i := range l.got {
						n += len(l.got[i].Facts.(map[string]any)["letters"].([]any))
					}
					return n
				}
				block := func(yes bool) {
					t.Helper()
					if why == "full" {
						d.hooks.mu.Lock()
						k := d.hooks.hooks["desk"]
						if k.bytes = 0; yes {
							k.bytes = maxHookBytes
						}
						d.hooks.mu.Unlock()
						return
					}
					if _, _, err := d.hooks.Put(Webhook{Name: "desk", URL: l.URL, On: !yes}, Actor{Who: "guest"}); err != nil {
						t.Fatal(err)
					}
				}
				rules := []Rule{
					{Name: "keep", On: true, Queues: "^dlq$", Action: RuleWebhook, Webhook: "desk", Match: Filter{"body": {"1"}}}, // no rule behind it takes these
					{Name: "tell", On: true, Queues: "^dlq$", Action: RuleWebhook, Webhook: "desk", Last: new(bool)},
					{Name: "park", On: true, Queues: "^dlq$", Action: RuleSend, ToQueue: "park", Match: Filter{"where": {"header.n=0"}}},
				}
				d.put(rules...)
				d.eventually("it is told of those that are there", func() bool { d.work(); return told() == 2 && d.ready("park") == 1 && d.shown("desk").Waiting == 0 })
				block(true)
				d.more(2, 2) // 3 stays for "tell"
				d.more(11, 1)
				d.work()
				if d.ready("park") != 2 || d.ready("dlq") != 3 || told() != 2 {
					t.Fatalf("%d are parked, %d stay, %d are told of, %+v", d.ready("park"), d.ready("dlq"), told(), d.rules.Book("/"))
				}
				if r := d.rule("tell"); r.State != "on" || !strings.Contains(r.Why, "desk") {
					t.Errorf("%+v", r)
				}
				d.pass(60_000)
				d.shutDown()
				d = open(60_000)
				block(true)
				d.work()
				d.more(21, 1)
				d.pass(60_000)
				if d.ready("park") != 2 || d.ready("dlq") != 4 || told() != 2 {
					t.Fatalf("after a restart %d are parked, %d stay, %d are told of", d.ready("park"), d.ready("dlq"), told())
				}
				block(false)
				d.pass(60_000)
				d.eventually("it is told of the others", func() bool { d.work(); return told() >= 5 && d.shown("desk").Waiting == 0 })
				d.shutDown()
				d = open(60_000)
				d.more(31, 1)
				d.pass(60_000)
				d.eventually("it is told of one more", func() bool { d.work(); return told() >= 6 && d.shown("desk").Waiting == 0 })
				if d.ready("park") != 2 || d.ready("dlq") != 5 || told() != 6 || d.rule("keep").Acted != 4 || d.rule("tell").Acted != 2 {
					t.Errorf("%d are parked, %d stay, %d are told of, %+v", d.ready("park"), d.ready("dlq"), told(), d.rules.Book("/"))
				}
			})
		}
	}
}

// Whoever listens is told of a group's first letter, once, of one that comes to a group that was called resolved, and of a queue that grows beyond the
// threshold; of what was there before, and of discarded letters, nobody is.
func TestEventsOfLetters(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 3)
	d.declare("other", "classic", amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "dlq"})
	l := newListener(t)
	ten := 10
	if _, err := d.rules.Put(d.c, Actor{}, nil, &ten, false); err != nil {
		t.Fatal(err)
	}
	d.hook("desk", l.URL, "letter.#")
	d.work()
	d.more(3, 2)
	d.work()
	die := func(n int) {
		for range n {
			d.publish("other", "x")
			d.kill("other")
		}
		d.eventually("they have died", func() bool { d.work(); return d.counts("other").Dying == 0 })
		d.work()
	}
	die(2)
	d.eventually("a group is told of", func() bool { return l.count() == 1 })
	facts := func(i int) map[string]any { return l.got[i].Facts.(map[string]any) }
	if f := facts(0); l.got[0].Event != groupEvent || f["source"] != "other" || f["queue"] != "dlq" || f["again"] != false || f["reason"] != "rejected" {
		t.Errorf("%+v", l.got[0])
	}
	g, err := d.f.Groups(t.Context(), GroupsRequest{Source: "other"})
	if err != nil || len(g.Items) != 1 || g.Items[0].ID != facts(0)["group"] {
		t.Fatalf("%+v, %v", g, err)
	}
	if _, err := d.f.SetNote("/", g.Items[0].number, NoteRequest{State: new("resolved")}, Actor{Who: "ann"}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond) // the next death is later than the note
	d.ahead.Add(eventEvery.Milliseconds())
	die(1)
	d.eventually("it is told of again", func() bool { return l.count() == 2 })
	if f := facts(1); f["again"] != true {
		t.Errorf("%+v", l.got[1])
	}
	die(3)
	d.eventually("the threshold is told of", func() bool { return l.count() == 3 })
	if f := facts(2); l.got[2].Event != thresholdEvent || f["queue"] != "dlq" || f["threshold"] != 10.0 || f["letters"].(float64) < 10 {
		t.Errorf("%+v", l.got[2])
	}
	if e := d.shown("desk"); e.Failed != 0 {
		t.Errorf("%+v", e)
	}
}

// Jobs and drops tell of themselves.
func TestEventsOfJobsAndDrops(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 2)
	l := newListener(t)
	d.hook("desk", l.URL, "job.*", "drop.recorded")
	drops := d.f.Drops
	j := d.start(Request{Action: "replay", Queue: "dlq"})
	d.until(j.ID, Done)
	d.eventually("the job is told of", func() bool { return l.count() == 2 })
	if e := l.events(); e[0] != "job.started" || e[1] != "job.done" {
		t.Errorf("%v", e)
	}
	if f := l.got[1].Facts.(map[string]any); f["id"] != strconv.FormatUint(j.ID, 10) || f["moved"] != 2.0 || f["action"] != "replay" {
		t.Errorf("%+v", f)
	}
	if _, err := d.c.DeclareQueue(topology.QueueDecl{Name: "lost", Durable: true}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		d.publish("lost", "x")
		d.kill("lost")
	}
	drops.take()
	drops.take()
	d.eventually("the drop is told of", func() bool { return l.count() == 3 })
	if f := l.got[2].Facts.(map[string]any); l.got[2].Event != "drop.recorded" || f["queue"] != "lost" || f["why"] != "no_dlx" {
		t.Errorf("%+v", l.got[2])
	}
}

// What masks hide is in no event and no message to a webhook, and a rule that would tell it needs to be allowed to see it.
func TestRulesAndEventsKeepWhatMasksHide(t *testing.T) {
	d := openChancery(t, vfs.NewMem(), 0)
	d.letters("classic", "classic", 0)
	if _, err := d.f.SetMask("/", letter.MaskRules{Headers: []string{"x-exception-message"}}, Actor{}); err != nil {
		t.Fatal(err)
	}
	l := newListener(t)
	d.hook("desk", l.URL, "letter.#")
	rule := Rule{Name: "tell", On: true, Action: RuleWebhook, Webhook: "desk", Match: Filter{"where": {"header.x-exception-message~secret"}}}
	var refused *Error
	if _, err := d.rules.Put(d.c, Actor{}, []Rule{rule}, nil, false); !errors.As(err, &refused) || refused.Kind != Forbidden {
		t.Errorf("a rule that would tell is taken: %v", err)
	}
	if _, err := d.rules.Try(t.Context(), d.c, rule, false); !errors.As(err, &refused) || refused.Kind != Forbidden {
		t.Errorf("a rule that would tell is tried: %v", err)
	}
	if _, err := d.rules.Put(d.c, Actor{}, []Rule{rule}, nil, true); err != nil {
		t.Fatal(err)
	}
	d.work()
	mode := uint8(2)
	raw := amqp091.AppendPropsFrom(nil, amqp091.PropertyList{DeliveryMode: &mode, Headers: amqp091.Table{{Key: "x-exception-message", Value: "the secret word"}}})
	props, err := amqp091.ParseProps(raw)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.c.PublishOne(&broker.Publication{Key: []byte("work"), Raw: raw, Props: props, Body: [][]byte{[]byte("x")}, Size: 1}); err != nil {
		t.Fatal(err)
	}
	d.kill("work")
	d.eventually("both are told", func() bool { d.work(); return l.count() >= 2 })
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, body := range l.bodies {
		if strings.Contains(string(body), "secret") {
			t.Errorf("%s", body)
		}
	}
}

// A mask that is set after a rule whose filter would tell what it hides stops that rule, which says why, also over a restart; others go on.
func TestAMaskStopsRulesThatWouldTell(t *testing.T) {
	fs := vfs.NewMem()
	d := openChancery(t, fs, 0)
	d.letters("classic", "classic", 2)
	l := newListener(t)
	d.hook("desk", l.URL)
	d.put(Rule{Name: "body", On: true, Action: RuleRetry, AfterMS: 60_000, Match: Filter{"body": {"1"}}},
		Rule{Name: "header", On: true, Action: RuleWebhook, Webhook: "desk", Match: Filter{"where": {"header.token=x"}}},
		Rule{Name: "all", On: true, Action: RuleRetry, AfterMS: 60_000, Queues: "^dlq$"})
	if _, err := d.rules.PutRule(d.c, Actor{}, Rule{Name: "sees", On: true, Action: RuleHold, Match: Filter{"body": {"1"}}}, true); err != nil {
		t.Fatal(err)
	}
	if _, err := d.f.SetMask("/", letter.MaskRules{Headers: []string{"token"}, Patterns: []string{"secret"}}, Actor{}); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		d.work()
		for name, filter := range map[string]string{"body": "filter 'body'", "header": "filter 'header.token'", "all": "", "sees": ""} {
			if r := d.rule(name); (r.State == "stopped") != (filter != "") || !strings.Contains(r.Why, filter) || filter != "" && r.Waiting != 0 {
				t.Errorf("%+v", r)
			}
		}
	}
	check()
	d.shutDown()
	d = openChancery(t, fs, 0)
	check()
	d.pass(60_000)
	if d.ready("work") != 1 || d.ready("dlq") != 1 {
		t.Errorf("%d went back, %d stay", d.ready("work"), d.ready("dlq"))
	}
	if _, err := d.rules.Switch(d.c, Actor{}, "body", true, false); err == nil {
		t.Error("it is switched on by who may not see")
	}
	if _, err := d.rules.Switch(d.c, Actor{}, "body", true, true); err != nil {
		t.Error(err)
	}
	if d.work(); d.ready("work") != 2 {
		t.Errorf("%d went back", d.ready("work"))
	}
}

// A pattern of many # is matched in time: an event may be told with locks held.
func TestPatternsOfEventsTakeLittleTime(t *testing.T) {
	for _, c := range []struct {
		pattern, key string
		want         bool
	}{
		{"#", "a.b", true}, {"#", "a", true}, {"a.#", "a", true}, {"#.a", "b.a", true}, {"#.a", "a.b", false}, {"a.#.c", "a.c", true}, {"a.#.c", "a.b.b.c", true}, {"a.*", "a", false},
		{"a.*", "a.b", true}, {"*", "a.b", false}, {"a.b", "a.b", true}, {"a.b", "a.c", false}, {"a", "a.b", false}, {"a.b", "a", false}, {"#.*", "a", true}, {"*.#.*", "a", false}, {"#.b.#", "a.b.c", true},
		{"#.b.#.b", "a.b", false}, {"#.#.#", "a", true}, {"*.a", "a.a", true}, {"a.*.a", "a.a", false},
		{strings.Repeat("#.", 120) + "z", strings.Repeat("a.", 120) + "b", false}, {strings.Repeat("#.a.", 60) + "#", strings.Repeat("a.", 120) + "b", true},
	} {
		began := time.Now()
		if got := matchesTopic(strings.Split(c.pattern, "."), strings.Split(c.key, ".")); got != c.want {
			t.Errorf("%.20s matches %.20s: %t", c.pattern, c.key, got)
		}
		if took := time.Since(began); took > time.Second {
			t.Fatalf("%.20s took %v", c.pattern, took)
		}
	}
}

package hostile

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bartleby.mq/test/bystander"
)

// dear is a request that costs as much as its bounds allow: an expression, a list or a body.
type dear struct {
	what, user, method, path string
	body                     func() io.Reader // nil: none
	length                   int64            // of the body
}

// trickle is a body that is announced and never ends; its client waits for more until it goes.
type trickle struct {
	ctx   context.Context
	begun bool
}

func (b *trickle) Read(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		return copy(p, "{"), nil
	}
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

// dears are what small users can ask for. A search looks at letters with headers of 60 kB.
func dears(ctx context.Context) []dear {
	const expression = ".{0,200}.{0,200}b$"
	text := func(s string) func() io.Reader { return func() io.Reader { return strings.NewReader(s) } }
	endless := func() io.Reader { return &trickle{ctx: ctx} }
	where := "where=header.h~" + strings.NewReplacer("{", "%7B", "}", "%7D", "$", "%24").Replace(expression)
	large := `{"routing_key": "low.sink", "properties": {}, "payload_encoding": "string", "payload": "` + strings.Repeat("x", 2<<20) + `"}`
	return []dear{
		{what: "search", user: "low", method: "GET", path: "office/letters/%2F/low.dead?" + where},
		{what: "export", user: "low", method: "GET", path: "office/export/%2F/low.dead?" + where},
		{what: "groups", user: "low", method: "GET", path: "office/groups?text=nothing&limit=1000"},
		{what: "plan", user: "low", method: "POST", path: "office/jobs?dry_run=true", body: text(`{"action": "discard", "vhost": "/", "queue": "low.dead", "filter": {"where": "header.h~` + expression + `"}}`)},
		{what: "rule", user: "policies", method: "POST", path: "office/rules/%2F/try", body: text(`{"name": "r", "action": "hold", "match": {"where": ["header.h~` + expression + `"]}}`)},
		{what: "lint", user: "policies", method: "GET", path: "office/lint"},
		{what: "map", user: "low", method: "GET", path: "office/topology/%2F"},
		{what: "queues", user: "low", method: "GET", path: "queues?page=1&page_size=500&use_regex=true&name=" + strings.NewReplacer("{", "%7B", "}", "%7D", "$", "%24").Replace(expression)},
		{what: "bindings", user: "low", method: "GET", path: "bindings"},
		{what: "overview", user: "low", method: "GET", path: "overview"},
		{what: "messages", user: "low", method: "POST", path: "queues/%2F/low.dead/get", body: text(`{"ackmode": "peek", "count": 1000, "encoding": "auto"}`)},
		{what: "large bodies", user: "low", method: "POST", path: "exchanges/%2F/amq.default/publish", body: text(large)},
		{what: "endless bodies", user: "low", method: "PUT", path: "queues/%2F/low.x", body: endless, length: 900_000},
		{what: "endless imports", user: "low", method: "POST", path: "office/import/%2F/low.sink", body: endless, length: 1 << 40},
	}
}

// asAdministrator asks for what the test takes for granted.
func asAdministrator(t *testing.T, client *http.Client, method, path, body string) {
	t.Helper()
	status, err := ask(t.Context(), client, &dear{user: "guest", method: method, path: path, body: func() io.Reader { return strings.NewReader(body) }})
	if err != nil || status >= 300 {
		t.Fatal(method, path, status, err)
	}
}

// ask sends a request, and reads the whole answer.
func ask(ctx context.Context, client *http.Client, d *dear) (status int, err error) {
	var body io.Reader = http.NoBody
	if d.body != nil {
		body = d.body()
	}
	r, err := http.NewRequestWithContext(ctx, d.method, "http://"+server.HTTP+"/api/"+d.path, body)
	if err != nil {
		return 0, err
	}
	if d.length > 0 {
		r.ContentLength = d.length
	}
	r.SetBasicAuth(d.user, d.user)
	a, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = a.Body.Close() }()
	_, err = io.Copy(io.Discard, a.Body)
	return a.StatusCode, err
}

// flood asks the same by many at once until ctx ends, and counts the answers by status; 0 are those that were cut.
type flood struct {
	all    sync.WaitGroup
	mu     sync.Mutex // guards counts
	counts map[int]int
}

const atOnceAsked = 100

func begin(ctx context.Context, d *dear, each int) *flood {
	f := &flood{counts: map[int]int{}}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range each {
		f.all.Go(func() {
			for ctx.Err() == nil {
				status, _ := ask(ctx, client, d)
				f.mu.Lock()
				f.counts[status]++
				f.mu.Unlock()
				if status == 0 {
					return // the node ends, or the test
				}
			}
		})
	}
	return f
}

// Whatever small users ask for, a hundred at once: a client of AMQP and an administrator over HTTP go on meanwhile, no answer is a failure but
// those that say that there is no room, memory is bounded, and the work ends when who has asked is gone. A stop in the midst of all ends the node.
func TestAHundredDearRequestsOfEachKind(t *testing.T) {
	if testing.Short() {
		t.Skip("a stop waits ten seconds for bodies that do not come")
	}
	const messages, answers, bound = 20, 3, 512 * mib
	start(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, user := range []struct{ name, tags string }{{"low", "management"}, {"policies", "policymaker"}} {
		asAdministrator(t, client, "PUT", "users/"+user.name, `{"password": "`+user.name+`", "tags": "`+user.tags+`"}`)
		asAdministrator(t, client, "PUT", "permissions/%2F/"+user.name, `{"configure": "^low", "write": "^(low.*|amq.default)$", "read": "^low"}`)
	}
	asAdministrator(t, client, "PUT", "queues/%2F/low.sink", `{"arguments": {"x-max-length": 4}}`)
	asAdministrator(t, client, "PUT", "queues/%2F/low.dead", `{}`)
	asAdministrator(t, client, "PUT", "queues/%2F/low.work", `{"arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "low.dead", "x-message-ttl": 0}}`)
	for range 40 {
		asAdministrator(t, client, "POST", "exchanges/%2F/amq.default/publish", `{"routing_key": "low.work", "payload": "x", "payload_encoding": "string", "properties": {"headers": {"h": "`+strings.Repeat("a", 60_000)+`"}}}`)
	}
	for i := range 300 {
		asAdministrator(t, client, "PUT", fmt.Sprintf("queues/%%2F/low.%s.%d", strings.Repeat("n", 200), i), `{}`)
	}
	before := usage(t)
	for _, d := range dears(t.Context()) {
		t.Run(d.what, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			d := dears(ctx)[slices.IndexFunc(dears(ctx), func(o dear) bool { return o.what == d.what })]
			f := begin(ctx, &d, atOnceAsked)
			saw, slowest := whileOthersGoOn(t, client, messages, answers)
			during := usage(t)
			leave()
			f.all.Wait()
			for status, n := range f.counts {
				if status >= 500 && status != http.StatusServiceUnavailable {
					t.Errorf("%d answers are %d", n, status)
				}
			}
			if grown := during.RSS - before.RSS; grown > bound {
				t.Errorf("the server has grown from %d to %d MiB, want %d MiB more at most", before.RSS/mib, during.RSS/mib, int64(bound)/mib)
			}
			idle(t)
			t.Logf("%v; slowest answer %v; memory %d MiB; answers by status %s", saw, slowest.Round(time.Millisecond), during.RSS/mib, counted(f.counts))
		})
	}
	settled(t, before)

	// All of them are under way, ten of each, and the node is told to end.
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var all []*flood
	for _, d := range dears(ctx) {
		all = append(all, begin(ctx, &d, 10))
	}
	whileOthersGoOn(t, client, messages, 1)
	if err := server.Stop(); err != nil {
		t.Error("in the midst of requests: ", err)
	}
	leave()
	for _, f := range all {
		f.all.Wait()
	}
}

// whileOthersGoOn returns when a bystander has had so many messages back, and an administrator so many answers.
func whileOthersGoOn(t *testing.T, client *http.Client, messages, answers int) (saw bystander.Latencies, slowest time.Duration) {
	t.Helper()
	b, err := bystander.Watch(server.AMQP)
	if err != nil {
		t.Fatal("the bystander cannot connect: ", err)
	}
	for range answers {
		began := time.Now()
		asAdministrator(t, client, "GET", "whoami", "")
		slowest = max(slowest, time.Since(began))
	}
	for deadline := time.Now().Add(2 * time.Minute); len(saw) < messages; time.Sleep(10 * time.Millisecond) {
		more, err := b.Reset()
		if saw = append(saw, more...); err != nil || time.Now().After(deadline) {
			t.Fatalf("the bystander has %d messages back of %d: %v", len(saw), messages, err)
		}
	}
	if _, err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(saw)
	return saw, slowest
}

// idle returns when the server works for nobody any more.
func idle(t *testing.T) {
	t.Helper()
	const pause, most = 100 * time.Millisecond, 50 * time.Millisecond
	last := usage(t).CPU
	for deadline := time.Now().Add(time.Minute); ; {
		time.Sleep(pause)
		now := usage(t).CPU
		if now-last < most {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a minute after its clients have gone the server still works: %v in %v", now-last, pause)
		}
		last = now
	}
}

func counted(counts map[int]int) string {
	var all []string
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%d: %d", status, counts[status]))
	}
	return strings.Join(all, ", ")
}

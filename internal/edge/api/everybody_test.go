package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/office"
	"bartleby.mq/internal/wire/amqp091"
)

// Each route is asked by each kind of user, for what is in a virtual host that they may enter and in one that they may not. What they may
// see and change follows from their tags and permissions, by the rules of everySecret and mayChange: not from the routes, and not from what
// was answered once. A new route takes part by itself; if nobody says how to ask it, the test fails.

// The virtual hosts: all users have permissions in the first, and only the administrator who made everything in the second.
const (
	entered = "entered"
	foreign = "mkforeign"
)

// person is a kind of user.
type person struct {
	name, tags  string
	permissions string // in the virtual host entered, for all three; "": none
}

var persons = []person{
	{"untagged", "", ".*"},
	{"impersonator", "impersonator", ".*"},
	{"outsider", "management", ""},
	{"low", "management", "^own"},
	{"manager", "management", ".*"},
	{"revealer", "management,reveal", ".*"},
	{"policies-low", "policymaker", "^own"},
	{"policies", "policymaker", ".*"},
	{"monitor-low", "monitoring", "^own"},
	{"monitor", "monitoring", ".*"},
	{"administrator-low", "administrator", "^own"},
	{"administrator", "administrator", ".*"},
}

func (p *person) has(tags ...string) bool {
	return slices.ContainsFunc(strings.Split(p.tags, ","), func(t string) bool { return slices.Contains(tags, t) })
}

// logsIn says whether the API lets the user in (BR-15.3).
func (p *person) logsIn() bool {
	return p.has("management", "policymaker", "monitoring", "administrator")
}

// enters says whether the user may look into a virtual host.
func (p *person) enters(vhost string) bool {
	return p.has("administrator") || p.permissions != "" && vhost == entered
}

// lists says whether the user may know what is declared in a virtual host.
func (p *person) lists(vhost string) bool { return p.has("monitoring") || p.enters(vhost) }

// permitted says whether the user's permissions, all of which are alike, are for an object.
func (p *person) permitted(vhost, object string) bool {
	return p.permissions != "" && vhost == entered && regexp.MustCompile(p.permissions).MatchString(object)
}

// secret is a text that is somewhere in the node, and who may read it.
type secret struct {
	what, marker string
	may          func(p *person, ask *asking) bool
}

// letterSecret is a secret of a letter: who may read its queue may see it, and who has the tag monitoring may see metadata of all.
func letterSecret(what, vhost, queue string, metadata bool) secret {
	marker := "mk" + what + strings.ReplaceAll(queue, ".", "") + vhost
	return secret{what + " of a letter of " + queue, marker, func(p *person, _ *asking) bool {
		return p.permitted(vhost, queue) || metadata && p.has("monitoring", "administrator")
	}}
}

// maskedSecret is one that masks hide: in the office it is for who reveals it.
func maskedSecret(s secret) secret {
	may := s.may
	s.may = func(p *person, ask *asking) bool {
		return may(p, ask) && (!strings.HasPrefix(ask.pattern, "office/") || p.has("reveal") && strings.Contains(ask.query, "reveal=true"))
	}
	return s
}

// queuesOf are the queues with letters of a virtual host; in front of each is one whose letters go there.
func queuesOf(vhost string) []string { return []string{"own.dead-" + vhost, "shut.dead-" + vhost} }

func secretsOf(vhost string) (all []secret) {
	for _, q := range queuesOf(vhost) {
		all = append(all, letterSecret("body", vhost, q, false), letterSecret("header", vhost, q, false), letterSecret("id", vhost, q, true), letterSecret("reason", vhost, q, true),
			letterSecret("note", vhost, q, true), letterSecret("dropbody", vhost, q, false), letterSecret("dropid", vhost, q, true), maskedSecret(letterSecret("hidden", vhost, q, false)), maskedSecret(letterSecret("pattern", vhost, q, true)))
	}
	makesPolicies := func(p *person, _ *asking) bool { return p.has("policymaker", "administrator") && p.enters(vhost) }
	all = append(all,
		secret{"address of a shovel", "mkshovel" + vhost, makesPolicies},
		secret{"address of an upstream", "mkupstream" + vhost, makesPolicies},
		secret{"filter of a rule", "mkrule" + vhost, func(p *person, ask *asking) bool { return makesPolicies(p, ask) || p.has("monitoring") }},
		// Of another's job: who may read all its queues. The audit, for the tag monitoring, tells what was done.
		secret{"filter of a job", "mkjob" + vhost, func(p *person, ask *asking) bool {
			return p.permitted(vhost, queuesOf(vhost)[1]) || ask.pattern == "office/audit" && p.has("monitoring", "administrator")
		}},
	)
	return all
}

func everySecret() []secret {
	administers := func(p *person, _ *asking) bool { return p.has("administrator") }
	return slices.Concat(secretsOf(entered), secretsOf(foreign), []secret{
		{"what is in the other virtual host", foreign, func(p *person, _ *asking) bool { return p.lists(foreign) }},
		{"address of a global parameter", "mkglobal", administers},
		{"address of a webhook", "mkwebhook", administers},
		{"secret of a webhook", "mksignature", func(*person, *asking) bool { return false }},
		{"hash of a password", "bWtoYXNo", administers},
		{"connection of another", "mkprovided", func(p *person, _ *asking) bool { return p.has("monitoring", "administrator") }},
	})
}

// asking is a request of a route.
type asking struct {
	method, pattern, path, query, body string
	vhost                              string
}

func (a *asking) String() string { return a.method + " /" + a.path + "?" + a.query + " " + a.body }

// said is all that the request itself tells: an answer may repeat it.
func (a *asking) said() string {
	path, _ := url.PathUnescape(a.path)
	return path + " " + a.query + " " + a.body
}

// world is a node with all secrets.
type world struct {
	*node
	touched   atomic.Int64   // calls of what stands for the node's own state
	restarted map[string]int // shovels, by virtual host
	ids       map[string]string
	backups   int
}

func newWorld(t *testing.T) *world {
	w := &world{ids: map[string]string{}, restarted: map[string]int{}}
	touch := func() { w.touched.Add(1) }
	w.node = start(t, func(o *api.Options) {
		f, err := office.New(office.Options{Broker: o.Broker})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		o.Office = f
		o.Stop, o.StopApp, o.SetAlarm = touch, touch, func(broker.Alarm, bool) { touch() }
		o.SetMemoryWatermark = func(float64, int64) error { touch(); return nil }
		o.SetDiskFreeLimit = func(float64, int64) error { touch(); return nil }
		o.LogLevel, o.SetLogLevel = func() string { return "info" }, func(string) error { touch(); return nil }
		o.Settings = func() []string { return []string{"a = 1"} }
		o.Shovels = restarts(func(vhost message.VHost) { w.restarted[string(vhost)]++ })
		o.Listeners = func() []api.Listener { return []api.Listener{{Protocol: "amqp", Host: "127.0.0.1", Port: 5672}} }
	})
	var d struct {
		VHosts      []map[string]any `json:"vhosts"`
		Users       []map[string]any `json:"users"`
		Permissions []map[string]any `json:"permissions"`
		Queues      []map[string]any `json:"queues"`
		Exchanges   []map[string]any `json:"exchanges"`
		Bindings    []map[string]any `json:"bindings"`
		Policies    []map[string]any `json:"policies"`
		Parameters  []map[string]any `json:"parameters"`
		Topics      []map[string]any `json:"topic_permissions"`
		Global      []map[string]any `json:"global_parameters"`
	}
	user := func(name, tags string) map[string]any {
		return map[string]any{"name": name, "password": "p", "tags": tags}
	}
	permission := func(user, vhost, all string) map[string]any {
		return map[string]any{"user": user, "vhost": vhost, "configure": all, "write": all, "read": all}
	}
	for _, p := range persons {
		d.Users = append(d.Users, user(p.name, p.tags))
		if p.permissions != "" {
			d.Permissions = append(d.Permissions, permission(p.name, entered, p.permissions))
		}
	}
	d.Users = append(d.Users, map[string]any{"name": "hashed", "password_hash": "bWtoYXNobWtoYXNobWtoYXNobWtoYXNobWtoYXNobWtoYXNo", "tags": ""})
	d.Global = []map[string]any{{"name": "global", "value": map[string]any{"up": "amqp://u:mkglobal@h"}}}
	for _, v := range []string{entered, foreign} {
		d.VHosts = append(d.VHosts, map[string]any{"name": v})
		d.Permissions = append(d.Permissions, permission("guest", v, ".*"), permission("hashed", v, "^$"))
		for _, dead := range queuesOf(v) {
			work := strings.Replace(dead, "dead", "work", 1)
			d.Queues = append(d.Queues, map[string]any{"vhost": v, "name": dead, "durable": true, "arguments": map[string]any{}},
				map[string]any{"vhost": v, "name": work, "durable": true, "arguments": map[string]any{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}})
			d.Exchanges = append(d.Exchanges, map[string]any{"vhost": v, "name": dead, "type": "topic", "durable": true, "arguments": map[string]any{}})
			d.Topics = append(d.Topics, map[string]any{"user": "hashed", "vhost": v, "exchange": dead, "write": ".*", "read": ".*"})
			drop := strings.Replace(dead, "dead", "drop", 1)
			d.Queues = append(d.Queues, map[string]any{"vhost": v, "name": drop, "durable": true, "arguments": map[string]any{}})
			d.Bindings = append(d.Bindings, map[string]any{"vhost": v, "source": dead, "destination": dead, "destination_type": "queue", "routing_key": "key", "arguments": map[string]any{}},
				map[string]any{"vhost": v, "source": dead, "destination": dead, "destination_type": "exchange", "routing_key": "key", "arguments": map[string]any{}})
		}
		d.Policies = append(d.Policies, map[string]any{"vhost": v, "name": "policy", "pattern": "^nothing$", "definition": map[string]any{"max-length": 10}})
		d.Parameters = append(d.Parameters,
			map[string]any{"vhost": v, "component": "shovel", "name": "shovel", "value": map[string]any{"src-uri": "amqp://u:mkshovel" + v + "@h:1", "src-queue": "a", "dest-uri": "amqp://u:mkshovel" + v + "@h:1", "dest-queue": "b"}},
			map[string]any{"vhost": v, "component": "federation-upstream", "name": "upstream", "value": map[string]any{"uri": "amqp://u:mkupstream" + v + "@h"}},
			map[string]any{"vhost": v, "component": "operator_policy", "name": "policy", "value": map[string]any{"pattern": "^nothing$", "definition": map[string]any{"max-length": 10}}})
	}
	w.must("POST", "/definitions", jsonOf(d))
	for _, v := range []string{entered, foreign} {
		w.fill(v)
	}
	w.must("PUT", "/office/webhooks/hook", `{"url": "http://127.0.0.1:1/mkwebhook", "events": ["job.*"], "secret": "mksignature-0123456789", "on": false}`)
	c := w.connect("guest", entered, "mkconnection")
	c.status.Properties = amqp091.Table{{Key: "connection_name", Value: "mkprovided"}}
	w.b.CountQueues()
	return w
}

// fill puts letters, and what the office knows of them, into a virtual host.
func (w *world) fill(vhost string) {
	in := url.PathEscape(vhost)
	reject := func(queue string, message map[string]any) {
		message["routing_key"], message["payload_encoding"] = queue, "string"
		w.must("POST", "/exchanges/"+in+"/amq.default/publish", jsonOf(message))
		w.must("POST", "/queues/"+in+"/"+queue+"/get", `{"ackmode": "reject_requeue_false", "count": 1, "encoding": "auto"}`)
		w.b.CountQueues()
	}
	for _, dead := range queuesOf(vhost) {
		mark := func(what string) string { return "mk" + what + strings.ReplaceAll(dead, ".", "") + vhost }
		reject(strings.Replace(dead, "dead", "work", 1), map[string]any{"payload": mark("body"), "properties": map[string]any{
			"delivery_mode": 2, "message_id": mark("id"),
			"headers": map[string]any{"plain": mark("header"), "hidden": mark("hidden"), "x-exception-message": mark("reason") + " " + mark("pattern")},
		}})
		reject(strings.Replace(dead, "dead", "drop", 1), map[string]any{"payload": mark("dropbody"), "properties": map[string]any{"message_id": mark("dropid")}})
		at := in + "/" + dead
		w.ids["export "+at] = w.must("GET", "/office/export/"+at, "").body + "\n"
		w.ids["letter "+at] = w.letters("/office/letters/" + at)[0]["id"].(string)
		group := w.groups("/office/groups/" + at)[0]["id"].(string)
		w.ids["group "+at] = group
		w.must("PUT", "/office/groups/"+in+"/"+group, `{"note": "`+mark("note")+`"}`)
	}
	w.must("PUT", "/office/rules/"+in+"/rule", `{"action": "hold", "match": {"where": ["header.plain=mkrule`+vhost+`"]}}`)
	job := `"action": "discard", "vhost": "` + vhost + `", "queue": "` + queuesOf(vhost)[1] + `", "filter": {"body": "mkjob` + vhost + `"}, ` + later()
	plan := w.must("POST", "/office/jobs?dry_run=true", "{"+job+"}").object(w.t)
	w.ids["job "+in] = fmt.Sprint(w.must("POST", "/office/jobs", fmt.Sprintf(`{%s, "token": %q, "count": %v}`, job, plan["token"], plan["count"])).object(w.t)["id"])
	w.must("PUT", "/office/masks/"+in, `{"headers": ["hidden"], "patterns": ["mkpattern[a-z-]*"]}`)
}

// later is the time of a job that does not begin yet.
func later() string {
	return fmt.Sprintf(`"schedule_ms": %d`, time.Now().Add(time.Hour).UnixMilli())
}

// restarts is a node's shovels: it is called where one is restarted.
type restarts func(message.VHost)

func (f restarts) Shown(func(message.VHost) bool) []map[string]any { return nil }

func (f restarts) Restart(vhost message.VHost, _ string) bool {
	f(vhost)
	return true
}

func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// value is what stands for a parameter of a path, "" if nobody says it. object is the queue that the request is about.
func (w *world) value(method, pattern, parameter, vhost, object string) string {
	at := url.PathEscape(vhost) + "/" + object
	second := object == queuesOf(vhost)[1]
	isNew := method == http.MethodPut && (pattern == "queues/{vhost}/{queue}" || pattern == "exchanges/{vhost}/{exchange}")
	switch parameter {
	case "vhost":
		return vhost
	case "queue", "exchange", "source", "destination":
		switch {
		case pattern == "office/groups/{vhost}/{queue}" && method == http.MethodPut:
			return w.ids["group "+at]
		case isNew:
			return strings.Replace(object, "dead", "new", 1)
		}
		return object
	case "id":
		if strings.HasPrefix(pattern, "office/jobs/") {
			return w.ids["job "+url.PathEscape(vhost)]
		}
		return w.ids["letter "+at]
	case "component", "name":
		first, _, _ := strings.Cut(pattern, "/")
		switch {
		case pattern == "office/webhooks/{name}" || strings.HasPrefix(pattern, "office/webhooks/{name}/"):
			return "hook"
		case first == "global-parameters":
			return "global"
		case first == "parameters" && second && parameter == "component":
			return "federation-upstream"
		case first == "parameters" && second:
			return "upstream"
		}
		return "shovel"
	case "limit":
		if strings.HasPrefix(pattern, "user-limits") {
			return "max-channels"
		}
		return "max-queues"
	}
	return map[string]string{
		"props": "key", "user": "hashed", "node": "rabbit@test", "password": "p", "flag": "quorum_queue", "policy": "policy", "connection": "mkconnection", "channel": "mkconnection (1)",
		"port": "5672", "protocol": "amqp", "within": "1", "unit": "weeks", "pattern": "own", "rule": "rule",
	}[parameter]
}

// bodies are what requests with a body say. WORD is put in by body. Queries stand behind a question mark, in front of the body.
var bodies = map[string][]string{
	"PUT cluster-name":                                 {`{"name": "changed"}`},
	"PUT feature-flags/{flag}/enable":                  {`{}`},
	"POST login":                                       {`username=USER&password=p`},
	"POST session":                                     {`{"username": "USER", "password": "p"}`},
	"POST all-configuration":                           {`{"queues": [{"vhost": "VHOST", "name": "imported", "durable": true, "auto_delete": false, "arguments": {}}]}`},
	"POST definitions":                                 {`{"queues": [{"vhost": "VHOST", "name": "imported", "durable": true, "auto_delete": false, "arguments": {}}]}`, `?dry_run=true {"queues": []}`},
	"POST definitions/{vhost}":                         {`{"queues": [{"name": "imported", "durable": true, "auto_delete": false, "arguments": {}}]}`},
	"PUT vhosts/{vhost}":                               {`{"description": "changed"}`},
	"POST vhosts/{vhost}/start/{node}":                 {``},
	"POST vhosts/{vhost}/deletion/protection":          {``},
	"POST users/bulk-delete":                           {`{"users": ["hashed"]}`},
	"PUT users/{user}":                                 {`{"password": "q", "tags": "administrator"}`},
	"PUT permissions/{vhost}/{user}":                   {`{"configure": ".*", "write": ".*", "read": ".*"}`},
	"PUT topic-permissions/{vhost}/{user}":             {`{"exchange": "amq.topic", "write": ".*", "read": ".*"}`},
	"PUT vhost-limits/{vhost}/{limit}":                 {`{"value": 10}`},
	"PUT user-limits/{user}/{limit}":                   {`{"value": 10}`},
	"PUT policies/{vhost}/{policy}":                    {`{"pattern": "^changed$", "definition": {"max-length": 1}}`},
	"PUT operator-policies/{vhost}/{policy}":           {`{"pattern": "^changed$", "definition": {"max-length": 1}}`},
	"PUT parameters/{component}/{vhost}/{name}":        {`{"value": {"uri": "amqp://h", "src-uri": "amqp://h", "src-queue": "a", "dest-uri": "amqp://h", "dest-queue": "b"}}`},
	"PUT global-parameters/{name}":                     {`{"value": 1}`},
	"PUT exchanges/{vhost}/{exchange}":                 {`{"type": "fanout", "durable": true}`},
	"POST exchanges/{vhost}/{exchange}/publish":        {`{"routing_key": "key", "properties": {}, "payload": "x", "payload_encoding": "string"}`},
	"POST queues/quorum/{vhost}/{queue}/replicas/add":  {`{"node": "rabbit@test"}`},
	"POST queues/quorum/replicas/on/{node}/grow":       {`{"strategy": "all"}`},
	"PUT queues/{vhost}/{queue}":                       {`{"durable": true}`},
	"POST queues/{vhost}/{queue}/get":                  {`{"ackmode": "peek", "count": 9, "encoding": "auto"}`, `{"ackmode": "ack_requeue_false", "count": 9, "encoding": "auto"}`},
	"POST queues/{vhost}/{queue}/actions":              {`{"action": "sync"}`},
	"POST queues/{vhost}/{queue}/replay":               {`{"dry_run": true}`, `{}`, `{"to_queue": "FOREIGN"}`},
	"POST rebalance/queues":                            {``},
	"POST stranded/{vhost}/relocate":                   {`{}`},
	"POST control/stop":                                {``},
	"POST control/stop-app":                            {``},
	"POST control/start-app":                           {``},
	"PUT control/alarm":                                {`{"alarm": "memory", "active": true}`},
	"POST backup":                                      {`{"path": "BACKUP"}`},
	"PUT control/memory-watermark":                     {`{"fraction": 0.5}`},
	"PUT control/disk-free-limit":                      {`{"bytes": 1000}`},
	"PUT control/log-level":                            {`{"level": "info"}`},
	"POST control/authenticate":                        {`{"user": "low", "password": "p"}`},
	"POST bindings/{vhost}/e/{source}/q/{queue}":       {`{"routing_key": "new"}`},
	"POST bindings/{vhost}/e/{source}/e/{destination}": {`{"routing_key": "new"}`},
	"PUT office/groups/{vhost}/{queue}":                {`{"state": "triaged"}`},
	"POST office/import/{vhost}/{queue}":               {`EXPORT`},
	"PUT office/masks/{vhost}":                         {`{"headers": ["changed"]}`},
	"POST office/jobs":                                 {`?dry_run=true {JOB}`, `{JOB, TOKEN}`, `?dry_run=true {JOB, "filter": {"where": "header.hidden"}}`},
	"POST office/jobs/{id}/pause":                      {``},
	"POST office/jobs/{id}/resume":                     {``},
	"POST office/jobs/{id}/cancel":                     {``},
	"PUT office/queues/{vhost}/{queue}/arguments":      {`{"set": {"x-max-length": 1000}}`},
	"POST office/queues/{vhost}/{queue}/breaker/close": {``},
	"PUT office/rules/{vhost}":                         {`{"rules": [{"name": "changed", "action": "hold"}]}`},
	"POST office/rules/{vhost}/try":                    {`{"name": "tried", "action": "hold", "match": {"body": "mk"}}`, `{"name": "tried", "action": "hold"}`},
	"PUT office/rules/{vhost}/{rule}":                  {`{"action": "hold"}`},
	"POST office/rules/{vhost}/{rule}/on":              {``},
	"POST office/rules/{vhost}/{rule}/off":             {``},
	"PUT office/webhooks/{name}":                       {`{"events": ["job.*"]}`},
	"POST office/webhooks/{name}/test":                 {``},
}

// body puts in what a body says.
func (w *world) body(text string, p *person, vhost, object string) string {
	job := fmt.Sprintf(`"action": "discard", "vhost": %q, "queue": %q, %s`, vhost, object, later())
	if strings.Contains(text, "TOKEN") {
		w.user = p.name + ":p"
		var plan struct{ Token string }
		_ = json.Unmarshal([]byte(w.do("POST", "/office/jobs?dry_run=true", "{"+job+"}").body), &plan) // it may be refused
		text = strings.Replace(text, "TOKEN", fmt.Sprintf(`"token": %q, "count": 1`, plan.Token), 1)
	}
	w.backups++
	return strings.NewReplacer("VHOST", vhost, "USER", p.name, "JOB", job, "BACKUP", fmt.Sprint("/backup", w.backups), "EXPORT", w.ids["export "+url.PathEscape(vhost)+"/"+object],
		"FOREIGN", queuesOf(foreign)[0]).Replace(text)
}

// asks are the requests of a route about a queue of a virtual host.
func (w *world) asks(method, pattern string, p *person, vhost, object string) (all []asking) {
	var path []string
	for _, s := range strings.Split(pattern, "/") {
		if parameter, ok := strings.CutPrefix(s, "{"); ok {
			v := w.value(method, pattern, strings.TrimSuffix(parameter, "}"), vhost, object)
			if v == "" {
				w.t.Fatalf("%s %s: what stands for %s? Say it in value", method, pattern, s)
			}
			s = url.PathEscape(v)
		}
		path = append(path, s)
	}
	a := asking{method: method, pattern: pattern, path: strings.Join(path, "/"), vhost: vhost}
	switch method {
	case http.MethodGet:
		all = append(all, a)
		if strings.HasPrefix(pattern, "office/") {
			a.query = "reveal=true"
			all = append(all, a)
		}
	case http.MethodDelete:
		all = append(all, a)
	default:
		texts, ok := bodies[method+" "+pattern]
		if !ok {
			w.t.Fatalf("%s %s: what is its body? Say it in bodies", method, pattern)
		}
		for _, text := range texts {
			a.query = ""
			if query, rest, ok := strings.Cut(text, " "); ok && strings.HasPrefix(query, "?") {
				a.query, text = query[1:], rest
			}
			a.body = w.body(text, p, vhost, object)
			all = append(all, a)
		}
	}
	return all
}

// leavingClient is one that goes when the first part of an answer has come, of which there may be no end.
type leavingClient struct {
	*httptest.ResponseRecorder
	leave func()
}

func (c leavingClient) Write(b []byte) (int, error) {
	c.leave()
	return c.ResponseRecorder.Write(b)
}

// ask sends a request of a user.
func (w *world) ask(p *person, a *asking) *httptest.ResponseRecorder {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, a.method, "/api/"+a.path+"?"+a.query, strings.NewReader(a.body))
	r.SetBasicAuth(p.name, "p")
	r.RemoteAddr = "127.0.0.1:1234"
	out := httptest.NewRecorder()
	if strings.HasSuffix(a.pattern, "/events") {
		w.handler.ServeHTTP(leavingClient{out, cancel}, r)
	} else {
		w.handler.ServeHTTP(out, r)
	}
	return out
}

// object is what a part of the node's state is about.
type object struct{ section, vhost, name string }

// state is all that requests can change, but for the audit.
type state struct {
	answers [][]byte // of stateOf
	more    map[object]string
}

// stateOf are the resources that show it.
var stateOf = []string{"definitions", "office/jobs", "office/webhooks", "office/rules/" + entered, "office/rules/" + foreign, "office/masks/" + entered, "office/masks/" + foreign, "office/groups/" + entered, "office/groups/" + foreign}

func (w *world) state() (s state) {
	for _, path := range stateOf {
		out := httptest.NewRecorder()
		api.Local(w.handler).ServeHTTP(out, httptest.NewRequest(http.MethodGet, "/api/"+path, http.NoBody))
		s.answers = append(s.answers, out.Body.Bytes())
	}
	s.more = map[object]string{{section: "node"}: fmt.Sprint(w.touched.Load())}
	for vhost, n := range w.restarted {
		s.more[object{"shovel", vhost, "restarted"}] = fmt.Sprint(n)
	}
	for _, q := range w.b.CountQueues() {
		key := object{"messages", string(q.Info.Decl.VHost), string(q.Info.Decl.Name)}
		s.more[key] = fmt.Sprint(q.Counts.Messages())
		key.section = "arguments"
		s.more[key] = fmt.Sprint(q.Info.Decl.Arguments)
	}
	for _, c := range w.b.Connections() {
		if c, ok := c.Client().(*client); ok {
			s.more[object{section: "connections", name: c.status.Name}] = c.ended()
		}
	}
	return s
}

// same says whether nothing has changed.
func (s *state) same(as *state) bool {
	return slices.EqualFunc(s.answers, as.answers, bytes.Equal) && maps.Equal(s.more, as.more)
}

// parts takes it apart.
func (s *state) parts(t *testing.T) map[object]string {
	all := maps.Clone(s.more)
	for i, path := range stateOf {
		var v any
		if err := json.Unmarshal(s.answers[i], &v); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		_, resource, _ := strings.Cut(path, "/")
		section, vhost, _ := strings.Cut(resource, "/")
		switch section {
		case "":
			for section, list := range v.(map[string]any) {
				define(all, section, list)
			}
		case "jobs":
			for _, j := range v.([]any) {
				j := j.(map[string]any)
				all[object{"jobs", j["vhost"].(string), fmt.Sprint(j["id"])}] = fmt.Sprint(j["state"], j["by"], j["queues"])
			}
		case "groups":
			items, _ := v.(map[string]any)["items"].([]any) // none in a virtual host that is gone
			for _, g := range items {
				g := g.(map[string]any)
				all[object{"notes", vhost, g["id"].(string)}] = fmt.Sprint(g["state"], g["owner"], g["note"])
			}
		default:
			all[object{section, vhost, ""}] = string(s.answers[i])
		}
	}
	return all
}

// define adds a list of definitions.
func define(all map[object]string, section string, list any) {
	items, _ := list.([]any)
	for _, one := range items {
		o := one.(map[string]any)
		text := func(key string) string { s, _ := o[key].(string); return s }
		key := object{section, text("vhost"), text("name")}
		switch section {
		case "vhosts":
			key.vhost = key.name
		case "bindings":
			key.name = text("source") + " " + text("destination")
		case "parameters":
			key.section = text("component")
		}
		all[key] += jsonOf(o)
	}
}

// mayChange says whether a user may change a part of the state. An administrator may whatever it grants itself.
func (p *person) mayChange(o object, is string) bool {
	switch o.section {
	case "policies", "shovel", "federation-upstream", "rules", "masks", "notes":
		return p.has("administrator") || p.has("policymaker") && p.enters(o.vhost)
	case "queues", "exchanges", "messages", "arguments":
		return p.has("administrator") || p.logsIn() && p.permitted(o.vhost, o.name)
	case "bindings":
		source, _, _ := strings.Cut(o.name, " ")
		return p.has("administrator") || p.logsIn() && p.permitted(o.vhost, source)
	case "jobs": // one's own of a queue that one may read; others' with the tag policymaker
		return p.has("administrator") || p.has("policymaker") && p.enters(o.vhost) || p.logsIn() && strings.Contains(is, p.name) && p.permitted(o.vhost, "own.dead-"+o.vhost)
	case "connections":
		return p.has("administrator", "monitoring")
	}
	return p.has("administrator")
}

// changed are the parts of the state that are not as they were.
func changed(before, after map[object]string) (all []object) {
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	for o := range keys {
		if _, there := after[o]; !there && o.section == "notes" {
			continue // it is not shown without letters
		}
		if before[o] != after[o] {
			all = append(all, o)
		}
	}
	return all
}

// failures are the statuses from 500 of requests that a node alone cannot do.
var failures = map[string]int{
	"POST office/webhooks/{name}/test":         http.StatusBadGateway,         // nobody listens
	"GET queues/quorum/{vhost}/{queue}/status": http.StatusServiceUnavailable, // it is a classic queue: so says RabbitMQ
}

// refused are the routes that refuse an administrator, too, and how.
var refused = map[string]int{
	"POST queues/{vhost}/{queue}/actions":                  400, // there is none
	"POST queues/quorum/{vhost}/{queue}/replicas/add":      400, // there is one node
	"DELETE queues/quorum/{vhost}/{queue}/replicas/delete": 400,
	"POST queues/quorum/replicas/on/{node}/grow":           400,
	"DELETE queues/quorum/replicas/on/{node}/shrink":       400,
	"POST control/stop-app":                                400, // of the control socket
	"POST office/webhooks/{name}/test":                     502,
	"GET queues/quorum/{vhost}/{queue}/status":             503,
	"GET connections/{connection}/sessions":                400, // it is of AMQP 0-9-1
	"DELETE exchanges/{vhost}/{exchange}/contents":         400, // it delays no messages
	"DELETE session":                                   403, // it has no cookie
	"GET office/export/{vhost}/{queue}":                403, // masks hide a part
	"POST office/queues/{vhost}/{queue}/breaker/close": 400, // it has none
}

// Each route with each kind of user, as said above.
func TestEachRouteWithEachKindOfUser(t *testing.T) {
	all := everySecret()
	reading := newWorld(t)
	for n, rt := range api.RoutesOf(reading.handler) {
		name := rt.Method + " " + rt.Pattern
		if testing.Short() && n%3 != 0 {
			continue // a third of the routes
		}
		t.Run(strings.ReplaceAll(name, "/", "|"), func(t *testing.T) {
			w := reading
			w.t = t
			if rt.Method != http.MethodGet {
				w = newWorld(t)
			}
			before := w.state()
			var last int // what the administrator was told last
			for i := range persons {
				p := &persons[i]
				if testing.Short() && (n/3+i)%6 != 0 && p.name != "administrator" {
					continue // two of the others at each route
				}
				asked := map[string]bool{}
				for _, in := range []string{entered, foreign} {
					for _, about := range queuesOf(in) {
						for k := range w.asks(rt.Method, rt.Pattern, p, in, about) {
							a := w.asks(rt.Method, rt.Pattern, p, in, about)[k] // of the world as it is
							if id := a.String(); asked[id] {
								continue
							} else {
								asked[id] = true
							}
							out := w.ask(p, &a)
							judge(t, all, p, &a, out)
							if p.name == "administrator" && in == entered && (last == 0 || last >= 300) {
								last = out.Code
							}
							if rt.Method == http.MethodGet {
								continue
							}
							after := w.state()
							if after.same(&before) {
								continue
							}
							was, is := before.parts(t), after.parts(t)
							parts := changed(was, is)
							if len(parts) == 0 {
								before = after // as rows of groups that were made anew
								continue
							}
							for _, o := range parts {
								if out.Code >= 400 || !p.mayChange(o, is[o]) {
									t.Errorf("%s: %v is answered %d, and has changed %v from %q to %q", p.name, &a, out.Code, o, was[o], is[o])
								}
							}
							w = newWorld(t)
							before = w.state()
						}
					}
				}
			}
			if want := refused[name]; last >= 300 && last != want {
				t.Errorf("an administrator with all permissions gets %d: then this says nothing", last)
			}
		})
	}
}

// judge looks at an answer.
func judge(t *testing.T, all []secret, p *person, a *asking, out *httptest.ResponseRecorder) {
	t.Helper()
	if out.Code >= 500 && out.Code != failures[a.method+" "+a.pattern] {
		t.Errorf("%s: %v fails with %d %s", p.name, a, out.Code, out.Body)
	}
	if !p.logsIn() && out.Code < 400 && out.Body.Len() > 0 && a.pattern != "login" {
		t.Errorf("%s: %v is answered %d %s", p.name, a, out.Code, out.Body)
	}
	text := out.Body.String()
	for k, v := range out.Header() {
		text += k + strings.Join(v, " ")
	}
	for _, s := range all {
		if at := strings.Index(text, s.marker); at >= 0 && !s.may(p, a) && !strings.Contains(a.said(), s.marker) {
			t.Errorf("%s: %v tells the %s: …%s", p.name, a, s.what, text[max(0, at-200):min(len(text), at+100)])
		}
	}
}

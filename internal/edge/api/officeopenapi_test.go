package api_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/run/office"
)

// described is what the test reads of the OpenAPI document.
type described struct {
	OpenAPI string
	Paths   map[string]map[string]struct {
		Parameters []struct {
			Name, In string
		}
		RequestBody *struct {
			Content map[string]struct{ Schema any }
		}
		Responses map[string]struct {
			Content map[string]struct{ Schema any }
		}
	}
	Components struct{ Schemas map[string]any }
}

// check says what of a value is not as a schema says: the parts of JSON Schema that the document uses. An unknown part is an error, so that
// none goes unchecked.
func (d *described) check(schema, v any, at string) (wrong []string) {
	s := schema.(map[string]any)
	for key, rule := range s {
		switch key {
		case "$ref":
			name := strings.TrimPrefix(rule.(string), "#/components/schemas/")
			wrong = append(wrong, d.check(d.Components.Schemas[name], v, at)...)
		case "anyOf":
			var all []string
			fits := slices.ContainsFunc(rule.([]any), func(one any) bool {
				not := d.check(one, v, at)
				all = append(all, not...)
				return len(not) == 0
			})
			if !fits {
				wrong = append(wrong, all...)
			}
		case "type":
			if is := typeOf(v); is != rule && !(is == "integer" && rule == "number") {
				wrong = append(wrong, fmt.Sprintf("%s is %s, not %v", at, is, rule))
			}
		case "items":
			list, _ := v.([]any)
			for i, e := range list {
				wrong = append(wrong, d.check(rule, e, fmt.Sprintf("%s[%d]", at, i))...)
			}
		case "properties":
			object, _ := v.(map[string]any)
			for name, of := range rule.(map[string]any) {
				if e, ok := object[name]; ok {
					wrong = append(wrong, d.check(of, e, at+"."+name)...)
				}
			}
		case "required":
			object, _ := v.(map[string]any)
			for _, name := range rule.([]any) {
				if _, ok := object[name.(string)]; !ok {
					wrong = append(wrong, fmt.Sprintf("%s has no %s", at, name))
				}
			}
		case "additionalProperties":
			object, _ := v.(map[string]any)
			known, _ := s["properties"].(map[string]any)
			for name, e := range object {
				switch _, ok := known[name]; {
				case ok:
				case rule == false:
					wrong = append(wrong, fmt.Sprintf("%s has %s, which is not described", at, name))
				default:
					wrong = append(wrong, d.check(rule, e, at+"."+name)...)
				}
			}
		default:
			wrong = append(wrong, fmt.Sprintf("the test does not know %q", key))
		}
	}
	return wrong
}

func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64:
		if v == math.Trunc(v) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// Each operation of the document is played, and each answer is as its schema says. All parameters of queries that it names are known.
func TestAnswersAreAsTheDocumentSays(t *testing.T) {
	n := withMasks(t, func(o *office.Options) { o.WebhooksLocal = true })
	var d described
	if err := json.Unmarshal([]byte(n.must("GET", "/office/openapi.json", "").body), &d); err != nil {
		t.Fatal(err)
	}
	if d.OpenAPI != "3.1.0" {
		t.Error(d.OpenAPI)
	}
	played, refused := map[string]bool{}, map[string]string{}
	// play sends a request for an operation, METHOD and path with {…}, which path fills in, and checks request and answer.
	play := func(operation, path, body string) any {
		t.Helper()
		method, pattern, _ := strings.Cut(operation, " ")
		o, ok := d.Paths["/api/office"+pattern][strings.ToLower(method)]
		if !ok {
			t.Fatalf("%s is not described", operation)
		}
		if body != "" && o.RequestBody == nil {
			t.Fatalf("%s: no body is described", operation)
		}
		if body != "" && o.RequestBody.Content["application/json"].Schema != nil {
			var asked any
			if err := json.Unmarshal([]byte(body), &asked); err != nil {
				t.Fatal(err)
			}
			for _, wrong := range d.check(o.RequestBody.Content["application/json"].Schema, asked, "the body") {
				t.Errorf("%s: %s", operation, wrong)
			}
		}
		a := n.send(httptest.NewRequest(method, "/api/office"+path, strings.NewReader(body)))
		response, ok := o.Responses[fmt.Sprint(a.status)]
		if ok && a.status == http.StatusNoContent {
			played[operation] = true
			return nil
		}
		if a.status >= 400 {
			response, ok = o.Responses["default"]
		}
		kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
		content, has := response.Content[kind]
		if !ok || !has {
			t.Fatalf("%s %s: %d %s is not described: %s", method, path, a.status, kind, a.body)
		}
		if played[operation] = played[operation] || a.status < 400; a.status >= 400 {
			refused[operation] = a.body
		}
		var answer any
		if kind == "application/json" {
			if err := json.Unmarshal([]byte(a.body), &answer); err != nil {
				t.Fatalf("%s: %v: %s", path, err, a.body)
			}
			for _, wrong := range d.check(content.Schema, answer, "the answer") {
				t.Errorf("%s %s: %s", method, path, wrong)
			}
		}
		return answer
	}
	object := func(v any) map[string]any { return v.(map[string]any) }

	n.must("PUT", "/queues/%2F/lost", `{"durable": true, "arguments": {"x-dead-letter-exchange": "gone", "x-queue-type": "quorum"}}`)
	n.must("POST", "/exchanges/%2F/amq.default/publish", `{"routing_key": "lost", "payload": "x", "payload_encoding": "string", "properties": {"type": "t", "message_id": "m"}}`)
	n.must("POST", "/queues/%2F/lost/get", `{"ackmode": "reject_requeue_false", "count": 1, "encoding": "auto"}`)
	n.b.CountQueues()
	for end := time.Now().Add(10 * time.Second); object(play("GET /groups", "/groups", ""))["reading"] == true && time.Now().Before(end); {
	}
	group := object(object(play("GET /groups/{vhost}", "/groups/%2F", ""))["items"].([]any)[0])
	play("GET /groups/{vhost}/{queue}", "/groups/%2F/orders.dead?limit=1", "")
	play("PUT /groups/{vhost}/{queue}", "/groups/%2F/"+fmt.Sprint(group["id"]), `{"state": "triaged", "owner": "ann", "note": "see"}`)
	play("GET /queues", "/queues", "")
	play("GET /queues/{vhost}", "/queues/%2F", "")
	play("PUT /queues/{vhost}/{queue}/arguments", "/queues/%2F/orders.dead/arguments", `{"set": {"x-max-length": 1000}, "unset": ["x-expires"]}`)
	n.must("PUT", "/policies/%2F/breaks", `{"pattern": "^orders.dead$", "definition": {"dead-letter-breaker": {"deaths": 50, "percent": 30, "window": 60000}}}`)
	play("POST /queues/{vhost}/{queue}/breaker/close", "/queues/%2F/orders.dead/breaker/close", "")
	play("GET /retries", "/retries", "")
	play("GET /retries/{vhost}", "/retries/%2F", "")
	letters := object(play("GET /letters/{vhost}/{queue}", "/letters/%2F/orders.dead?limit=1", ""))["items"].([]any)
	at := "/letters/%2F/orders.dead/" + fmt.Sprint(object(letters[0])["id"])
	play("GET /letters/{vhost}/{queue}/{id}", at, "")
	play("GET /letters/{vhost}/{queue}/{id}", "/letters/%2F/orders.dead/zz.zz", "") // 404
	play("GET /letters/{vhost}/{queue}/{id}/body", at+"/body", "")
	play("GET /lint", "/lint", "")
	play("GET /lint/{vhost}", "/lint/%2F", "")
	play("GET /topology/{vhost}", "/topology/%2F", "")
	play("GET /drops", "/drops?limit=1", "")
	play("GET /drops/{vhost}", "/drops/%2F", "")
	play("PUT /masks/{vhost}", "/masks/%2F", `{"headers": ["tenant"], "paths": ["$.order"]}`)
	play("GET /masks/{vhost}", "/masks/%2F", "")
	play("GET /letters/{vhost}/{queue}/{id}", at, "")

	const wanted = `{"action": "replay", "vhost": "/", "queue": "orders.dead", "filter": {"reason": "rejected", "died": 1, "where": ["header.x-exception-message"]}, "rate": 1, "reason": "mended", "canary": {"first": 1, "wait_ms": 1, "percent": 99.5}`
	plan := object(play("POST /jobs", "/jobs?dry_run=true", wanted+`}`))
	job := object(play("POST /jobs", "/jobs", fmt.Sprintf(`%s, "token": %q, "count": %v}`, wanted, plan["token"], plan["count"])))
	one := fmt.Sprint("/jobs/", job["id"])
	play("GET /jobs", "/jobs", "")
	play("GET /jobs", "/jobs?limit=1", "")
	play("GET /jobs/{id}", one, "")
	play("POST /jobs/{id}/pause", one+"/pause", "")
	play("POST /jobs/{id}/resume", one+"/resume", "")
	play("POST /jobs/{id}/cancel", one+"/cancel", "")
	n.must("DELETE", "/queues/%2F/orders/contents", "") // nothing waits for an outcome: the events end
	play("GET /jobs/{id}/events", one+"/events", "")
	play("GET /jobs/{id}", "/jobs/99", "")
	const rule = `"queues": "^orders", "match": {"reason": "rejected", "died": 1, "where": ["header.x-exception-message"]}, "action": "retry", "after_ms": 3600000, "factor": 1.5, "routing_key": "orders", "parked": true`
	play("POST /rules/{vhost}/try", "/rules/%2F/try", `{`+rule+`}`)
	play("PUT /rules/{vhost}", "/rules/%2F", `{"rules": [{"name": "again", "on": true, `+rule+`}], "threshold": 7}`)
	play("PUT /rules/{vhost}", "/rules/%2F", `{"threshold": 8, "revision": "old"}`) // 412
	play("PUT /rules/{vhost}/{rule}", "/rules/%2F/hold", `{"action": "hold"}`)
	play("GET /rules/{vhost}", "/rules/%2F", "")
	play("GET /rules/{vhost}/{rule}", "/rules/%2F/again", "")
	play("POST /rules/{vhost}/{rule}/off", "/rules/%2F/again/off", "")
	play("POST /rules/{vhost}/{rule}/on", "/rules/%2F/again/on", "")
	play("DELETE /rules/{vhost}/{rule}", "/rules/%2F/again", "")
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer hook.Close()
	play("PUT /webhooks/{name}", "/webhooks/desk", `{"url": "`+hook.URL+`", "events": ["job.*"], "secret": "0123456789abcdef"}`)
	play("PUT /webhooks/{name}", "/webhooks/desk", `{"vhost": "/"}`)
	play("GET /webhooks", "/webhooks", "")
	play("GET /webhooks/{name}", "/webhooks/desk", "")
	play("POST /webhooks/{name}/test", "/webhooks/desk/test", "")
	play("DELETE /webhooks/{name}", "/webhooks/desk", "")
	play("GET /audit", "/audit", "")
	play("GET /openapi.json", "/openapi.json", "")
	edit := fmt.Sprintf(`{"action": "edit", "vhost": "/", "queue": "bills.dead", "ids": [%q], "edit": {"body": "x", "headers": {"a": null}, "properties": {"type": "t"}}, "then": "stay"}`,
		object(object(play("GET /letters/{vhost}/{queue}", "/letters/%2F/bills.dead", ""))["items"].([]any)[0])["id"])
	play("PUT /masks/{vhost}", "/masks/%2F", `{}`)
	play("POST /jobs", "/jobs?dry_run=true", edit)

	exported := n.must("GET", "/office/export/%2F/orders.dead", "").body
	play("GET /export/{vhost}/{queue}", "/export/%2F/orders.dead?reason=rejected", "")
	play("POST /import/{vhost}/{queue}", "/import/%2F/orders.dead", exported+"\n{}\n")

	for path, methods := range d.Paths {
		pattern := strings.TrimPrefix(path, "/api/office")
		for method, o := range methods {
			name := strings.ToUpper(method) + " " + pattern
			if !played[name] {
				t.Errorf("%s is not played, or was refused: %s", name, refused[name])
			}
			if method != "get" {
				continue
			}
			real := strings.NewReplacer("{vhost}", "%2F", "{queue}", "orders.dead", "/letters/%2F/orders.dead/{id}", at, "/jobs/{id}", one).Replace(pattern)
			real = strings.ReplaceAll(real, "/letters/%2F/orders.dead/{id}", at)
			for _, p := range o.Parameters {
				if p.In == "query" {
					if a := n.do("GET", "/office"+real+"?"+p.Name+"=", ""); strings.Contains(a.body, "unknown parameter") || strings.Contains(a.body, "is no filter") {
						t.Errorf("%s: %s", name, a.body)
					}
				}
			}
		}
	}
}

// The checker of the tests finds what is wrong.
func TestTheCheckerChecks(t *testing.T) {
	d := described{}
	d.Components.Schemas = map[string]any{"T": map[string]any{"type": "object", "required": []any{"a"}, "additionalProperties": false, "properties": map[string]any{
		"a": map[string]any{"type": "array", "items": map[string]any{"type": "integer"}}, "b": map[string]any{"anyOf": []any{map[string]any{"type": "string"}, map[string]any{"type": "null"}}},
	}}}
	for text, want := range map[string]string{
		`{"a": [1]}`: "", `{"a": [], "b": null}`: "", `{"a": [1.5]}`: "x.a[0] is number, not integer", `{"a": null}`: "x.a is null, not array", `{}`: "x has no a",
		`{"a": [], "c": 1}`: "x has c, which is not described", `[]`: "x is array, not object", `{"a": [], "b": 1}`: "x.b is integer, not string",
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		got := d.check(map[string]any{"$ref": "#/components/schemas/T"}, v, "x")
		if want == "" && len(got) > 0 || want != "" && !slices.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

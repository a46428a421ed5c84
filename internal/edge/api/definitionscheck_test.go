package api_test

import (
	"strings"
	"testing"

	"bartleby.mq/internal/run/definitions"
)

// migrated has what other brokers have and this one has not, among what it takes.
const migrated = `{
	"users":[{"name":"ann","password":"x","tags":""},{"name":"bob","password_hash":"!!","tags":""}],
	"permissions":[{"user":"ann","vhost":"/","configure":"(?<=a)b","write":".*","read":".*"},{"user":"guest","vhost":"/","configure":"^(?!amq\\.).*","write":".*","read":".*"}],
	"exchanges":[{"name":"x","vhost":"/","type":"x-recent-history","durable":true,"auto_delete":false,"internal":false,"arguments":{}},
		{"name":"good","vhost":"/","type":"fanout","durable":true,"auto_delete":false,"internal":false,"arguments":{}}],
	"policies":[{"vhost":"/","name":"ahead","pattern":"^(?!amq\\.).*","apply-to":"all","definition":{"max-length":10}},
		{"vhost":"/","name":"behind","pattern":"(?<!a)b","apply-to":"all","definition":{"max-length":10}},
		{"vhost":"/","name":"wrong","pattern":"a","apply-to":"all","definition":{"max-length":"ten"}}],
	"queues":[{"name":"s","vhost":"/","durable":true,"auto_delete":false,"arguments":{"x-queue-type":"stream"}},
		{"name":"q","vhost":"/","durable":true,"auto_delete":false,"arguments":{}},
		{"name":"lost","vhost":"nowhere","durable":true,"auto_delete":false,"arguments":{}}],
	"bindings":[{"source":"good","vhost":"/","destination":"s","destination_type":"queue","routing_key":"","arguments":{}},
		{"source":"good","vhost":"/","destination":"q","destination_type":"queue","routing_key":"","arguments":{}}]
}`

// A dry run names all that is in the way at once, and changes nothing.
func TestDefinitionsDryRun(t *testing.T) {
	n := start(t)
	a := n.must("POST", "/definitions?dry_run=true", migrated)
	for _, want := range []string{`"name":"bob"`, `permissions of user 'ann' in vhost '/': the expression configure`, `"name":"x"`, `"name":"behind"`, `"name":"wrong"`, `"name":"s"`, `"vhost":"nowhere","name":"lost"`} {
		if !strings.Contains(a.body, want) {
			t.Errorf("%s is missing in %s", want, a.body)
		}
	}
	if got := strings.Count(a.body, `"kind"`); got != 6 {
		t.Errorf("%d obstacles, want one for each object that is refused: %s", got, a.body)
	}
	if strings.Contains(a.body, `"kind":"bindings"`) {
		t.Errorf("a binding of a queue that is left out is no obstacle of its own: %s", a.body)
	}
	if body := n.must("GET", "/queues", "").body; body != "[]" {
		t.Errorf("a dry run has made %s", body)
	}
	if body := n.must("POST", "/definitions?dry_run=true", n.must("GET", "/definitions", "").body).body; !strings.Contains(body, `"obstacles":[]`) {
		t.Errorf("an export cannot be imported: %s", body)
	}
}

// An import that is told to leaves out what this broker has not, and names it; what is wrong stops it still.
func TestDefinitionsSkipUnsupported(t *testing.T) {
	n := start(t)
	const stream = `"queues":[{"name":"s","vhost":"/","durable":true,"auto_delete":false,"arguments":{"x-queue-type":"stream"}},{"name":"q","vhost":"/","durable":true,"auto_delete":false,"arguments":{}}]`
	if a := n.do("POST", "/definitions", "{"+stream+"}"); a.status != 400 || !strings.Contains(a.body, "queue 's' in vhost '/'") {
		t.Errorf("%d %s, want 400 and the queue", a.status, a.body)
	}
	if body := n.must("POST", "/definitions?skip_unsupported=true", "{"+stream+"}").body; !strings.Contains(body, "queue 's' in vhost '/' is left out") {
		t.Errorf("what is left out is not named: %s", body)
	}
	if body := n.must("POST", "/definitions?skip_if_unchanged=true&skip_unsupported=true", "{"+stream+"}").body; body != `{"unchanged":true}` {
		t.Errorf("the same again: %s", body)
	}
	if body := n.must("GET", "/queues?columns=name", "").body; body != `[{"name":"q"}]` {
		t.Errorf("there is %s", body)
	}
	warnings, err := definitions.Import(n.b, []byte(`{"policies":[{"vhost":"/","name":"behind","pattern":"(?<!a)b","apply-to":"all","definition":{"max-length":10}}],`+stream+`,
		"bindings":[{"source":"amq.topic","vhost":"/","destination":"s","destination_type":"queue","routing_key":"","arguments":{}}]}`), definitions.How{SkipUnsupported: true})
	if all := strings.Join(warnings, "\n"); err != nil || !strings.Contains(all, "policy 'behind' in vhost '/' is left out") || !strings.Contains(all, "queue 's' in vhost '/' is left out") {
		t.Errorf("%v, warnings %s", err, all)
	}
	for _, wrong := range []string{
		`{"policies":[{"vhost":"/","name":"wrong","pattern":"a","apply-to":"all","definition":{"max-length":"ten"}}]}`,
		`{"users":[{"name":"bob","password_hash":"!!","tags":""}]}`,
	} {
		if a := n.do("POST", "/definitions?skip_unsupported=true", wrong); a.status != 400 {
			t.Errorf("%s: %d %s", wrong, a.status, a.body)
		}
	}
}

// A refused import names the object, whatever it is; in strict mode it says what RabbitMQ says.
func TestARefusedImportNamesTheObject(t *testing.T) {
	n, strict := start(t), start(t)
	strict.b.Strict = true
	for text, want := range map[string]string{
		`{"users":[{"name":"bob","password_hash":"!!","tags":""}]}`: "user 'bob': not_base64",
		`{"users":[{"password":"x","tags":""}]}`:                    "user '': [{key_missing,name}]",
		`{"bindings":[{"source":"amq.topic","vhost":"/","destination":"nowhere","destination_type":"queue","routing_key":"k","arguments":{}}]}`:                "binding of exchange 'amq.topic' in vhost '/': to queue 'nowhere' with the key 'k': no queue 'nowhere' in vhost '/'",
		`{"permissions":[{"user":"ann","vhost":"nowhere","configure":"","write":"","read":""}]}`:                                                               "permissions of user 'ann' in vhost 'nowhere': ",
		`{"policies":[{"vhost":"/","name":"wrong","pattern":"a","apply-to":"all","definition":{"max-length":"ten"}}]}`:                                         `key: \"wrong\"`,
		`{"policies":[{"vhost":"/","name":"wrong","apply-to":"all","definition":{"max-length":1}}]}`:                                                           "policy 'wrong' in vhost '/': ",
		`{"queues":[{"name":"lost","vhost":"nowhere","durable":true,"auto_delete":false,"arguments":{}}]}`:                                                     "queue 'lost' in vhost 'nowhere': ",
		`{"topic_permissions":[{"user":"nobody","vhost":"/","exchange":"amq.topic","write":"","read":""}]}`:                                                    "nobody",
		`{"parameters":[{"vhost":"/","component":"vhost-limits","name":"limits","value":{"max-queues":"many"}}],"global_parameters":[{"name":"x","value":1}]}`: "limits",
	} {
		if a := n.do("POST", "/definitions", text); a.status != 400 || !strings.Contains(a.body, want) {
			t.Errorf("%s\n%d %s, want %s", text, a.status, a.body, want)
		}
		if a := strict.do("POST", "/definitions", text); strings.Contains(a.body, "user 'bob'") || strings.Contains(a.body, "binding of") {
			t.Errorf("in strict mode: %s", a.body)
		}
	}
}

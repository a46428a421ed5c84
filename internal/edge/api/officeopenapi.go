package api

import (
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/lint"
	"bartleby.mq/internal/run/office"
)

// The OpenAPI document of the Dead Letter Office is made of the table below and of the Go types of what is asked and answered, so that it
// says what the program does. A test holds it against the routes, and plays requests whose answers it checks. Whoever adds a route below
// office/ adds a line here, and one to the requests of TestAnswersAreAsTheDocumentSays.

// operation describes one method of one route. asks and answers are values of the types of the bodies; nil: there is none.
type operation struct {
	route   string // method and pattern, as in routes
	summary string
	query   string // the parameters of the query, with spaces between
	asks    any
	answers any
	status  int    // of an answer; 0: 200
	content string // type of the answer; "": application/json
	rights  string
	tagged  bool // the answer has an ETag, which a change takes as If-Match
}

// What handlers answer as a map, and what they take apart by hand.
type (
	lettersAnswer struct {
		Items    []office.Row `json:"items"`
		Next     *string      `json:"next"`
		Examined int          `json:"examined"`
		Stopped  *string      `json:"stopped"`
	}
	noteAsked struct {
		State string `json:"state,omitempty"`
		Owner string `json:"owner,omitempty"`
		Note  string `json:"note,omitempty"`
	}
	masksAsked struct {
		Headers  []string `json:"headers,omitempty"`
		Paths    []string `json:"paths,omitempty"`
		Patterns []string `json:"patterns,omitempty"`
	}
	ruleAsked struct {
		office.Rule
		Name string `json:"name,omitempty"`
		On   bool   `json:"on,omitempty"`
	}
	rulesAsked struct {
		Rules     []ruleAsked `json:"rules,omitempty"`
		Threshold int         `json:"threshold,omitempty"`
		Revision  string      `json:"revision,omitempty"`
	}
	webhookAsked struct {
		URL    string   `json:"url,omitempty"`
		Events []string `json:"events,omitempty"`
		VHost  string   `json:"vhost,omitempty"`
		Secret string   `json:"secret,omitempty"`
		On     bool     `json:"on,omitempty"`
	}
	lines    struct{} // application/x-ndjson
	jobAsked struct {
		office.Request
		Filter map[string]any `json:"filter,omitempty"` // texts, numbers, or lists of them
	}
)

const (
	rightsQueues  = "Shows what the user may see: with the tag monitoring all queues, else those that the user may read."
	rightsLetters = "Needs permission to read the queue."
	rightsWebhook = "Needs the tag administrator."
	rightsReveal  = " reveal=true needs the tag reveal."
)

var letterQuery = "order limit cursor reveal " + strings.Join(letter.Filters, " ")

var officeOperations = []operation{
	{route: "GET office/queues", summary: "Queues that hold letters, or that dead-lettering leads to", query: "reveal", answers: []office.QueueRow{}, rights: rightsQueues + rightsReveal},
	{route: "GET office/queues/{vhost}", summary: "The same of one virtual host", query: "reveal", answers: []office.QueueRow{}, rights: rightsQueues + rightsReveal},
	{route: "PUT office/queues/{vhost}/{queue}/arguments", summary: "Changes arguments of a queue, at once", asks: argumentsAsked{}, answers: argumentsAnswer{}, rights: "Needs the tag policymaker and permission to configure the queue; for a dead-letter exchange also to read the queue and to write to the exchange."},
	{route: "POST office/queues/{vhost}/{queue}/breaker/close", summary: "Closes the breaker of a queue, so that it delivers again", answers: shownBreaker{}, rights: "Needs permission to configure the queue."},
	{route: "GET office/retries", summary: "Messages that wait for a delayed retry, by queue", answers: []office.RetryRow{}, rights: rightsQueues},
	{route: "GET office/retries/{vhost}", summary: "The same of one virtual host", answers: []office.RetryRow{}, rights: rightsQueues},
	{route: "GET office/groups", summary: "Letters that died alike, counted", query: groupQuery, answers: office.GroupsAnswer{}, rights: rightsQueues + rightsReveal},
	{route: "GET office/groups/{vhost}", summary: "The same of one virtual host", query: groupQuery, answers: office.GroupsAnswer{}, rights: rightsQueues + rightsReveal},
	{route: "GET office/groups/{vhost}/{queue}", summary: "The same of one queue", query: groupQuery, answers: office.GroupsAnswer{}, rights: rightsQueues + rightsReveal},
	{route: "PUT office/groups/{vhost}/{queue}", summary: "Says something of a group, whose id stands in place of the queue", asks: noteAsked{}, answers: office.Note{}, rights: "Needs the tag policymaker."},
	{route: "GET office/letters/{vhost}/{queue}", summary: "A page of the letters that filters select; with Accept: application/x-ndjson a stream of all", query: letterQuery, answers: lettersAnswer{}, rights: rightsLetters + rightsReveal},
	{route: "GET office/letters/{vhost}/{queue}/{id}", summary: "All of one letter; 410 if it has left its queue, 404 if there never was one", query: "reveal", answers: wholeLetter{}, rights: rightsLetters + rightsReveal},
	{route: "GET office/letters/{vhost}/{queue}/{id}/body", summary: "Its body, also by Range", query: "reveal", content: "application/octet-stream", rights: rightsLetters + rightsReveal},
	{route: "GET office/audit", summary: "Who did what, the latest first", query: "vhost who what limit cursor reveal", answers: auditAnswer{}, rights: "Needs the tag monitoring." + rightsReveal},
	{route: "GET office/masks/{vhost}", summary: "What is hidden in letters", answers: letter.MaskRules{}, rights: "Needs the tag policymaker."},
	{route: "PUT office/masks/{vhost}", summary: "Sets what is hidden", asks: masksAsked{}, answers: letter.MaskRules{}, rights: "Needs the tag policymaker."},
	{route: "GET office/lint", summary: "What may be wrong with declarations, the worst first", answers: []lint.Finding{}, rights: "Needs the tag monitoring or policymaker."},
	{route: "GET office/lint/{vhost}", summary: "The same of one virtual host", answers: []lint.Finding{}, rights: "Needs the tag monitoring or policymaker."},
	{route: "GET office/topology/{vhost}", summary: "The ways of dead letters", answers: lint.Map{}},
	{route: "GET office/drops", summary: "Messages that the node has dropped, the latest first", query: dropQuery, answers: dropsAnswer{}, rights: "Shows virtual hosts that the user may see." + rightsReveal},
	{route: "GET office/drops/{vhost}", summary: "The same of one virtual host", query: dropQuery, answers: dropsAnswer{}, rights: "Shows virtual hosts that the user may see." + rightsReveal},
	{route: "POST office/jobs", summary: "Plans a job with dry_run=true, whose answer is a plan; without it, begins the job that was planned", query: "dry_run reveal", asks: jobAsked{}, answers: either{office.Job{}, office.Plan{}}, status: http.StatusCreated, rights: "Needs the rights of what the job does." + rightsReveal},
	{route: "GET office/jobs", summary: "Jobs, the latest first: all, or with limit, cursor or state a page of them", query: "limit cursor state reveal", answers: either{[]shownJob{}, jobPage{}}, rights: "Shows virtual hosts that the user may see." + rightsReveal},
	{route: "GET office/jobs/{id}", summary: "A job", answers: shownJob{}, rights: "Shows virtual hosts that the user may see."},
	{route: "POST office/jobs/{id}/pause", summary: "Stops it until it is resumed", answers: office.Job{}, rights: rightsJob},
	{route: "POST office/jobs/{id}/resume", summary: "Goes on with it, with the rights of the user", answers: office.Job{}, rights: rightsJob},
	{route: "POST office/jobs/{id}/cancel", summary: "Ends it; what has moved stays where it is", answers: office.Job{}, rights: rightsJob},
	{route: "GET office/jobs/{id}/events", summary: "The job whenever it changes, as server-sent events", content: "text/event-stream", rights: "Shows virtual hosts that the user may see."},
	{route: "GET office/rules/{vhost}", summary: "What is done with letters without anybody asking, and what it has done", query: "reveal", answers: office.RuleBook{}, tagged: true, rights: rightsRule + rightsReveal},
	{route: "PUT office/rules/{vhost}", summary: "Sets all rules in their order, the threshold, or both; 412 if they are not those of If-Match, or of the body's revision", query: "reveal", asks: rulesAsked{}, answers: office.RuleBook{}, tagged: true, rights: rightsRule + rightsReveal},
	{route: "POST office/rules/{vhost}/try", summary: "What a rule would do with the letters there are; nothing changes", query: "reveal", asks: ruleAsked{}, answers: office.Trial{}, rights: rightsRule + rightsReveal},
	{route: "GET office/rules/{vhost}/{rule}", summary: "A rule", query: "reveal", answers: office.RuleShown{}, tagged: true, rights: rightsRule + rightsReveal},
	{route: "PUT office/rules/{vhost}/{rule}", summary: "Sets a rule: in place of the one of its name, or as the last", query: "reveal", asks: ruleAsked{}, answers: office.RuleBook{}, tagged: true, rights: rightsRule + rightsReveal},
	{route: "DELETE office/rules/{vhost}/{rule}", summary: "Removes a rule", answers: office.RuleBook{}, tagged: true, rights: rightsRule},
	{route: "POST office/rules/{vhost}/{rule}/on", summary: "Switches a rule on, with the rights of the user", query: "reveal", answers: office.RuleBook{}, tagged: true, rights: rightsRule + rightsReveal},
	{route: "POST office/rules/{vhost}/{rule}/off", summary: "Switches a rule off", query: "reveal", answers: office.RuleBook{}, tagged: true, rights: rightsRule},
	{route: "GET office/webhooks", summary: "Addresses that are told of events", answers: []office.WebhookShown{}, rights: rightsWebhook},
	{route: "GET office/webhooks/{name}", summary: "One of them, without its secret", answers: office.WebhookShown{}, rights: rightsWebhook},
	{route: "PUT office/webhooks/{name}", summary: "Makes or changes one; what is left out stays as it was", asks: webhookAsked{}, answers: either{office.WebhookShown{}, office.WebhookShown{}}, status: http.StatusCreated, rights: rightsWebhook},
	{route: "DELETE office/webhooks/{name}", summary: "Removes one, with what waits for it", status: http.StatusNoContent, rights: rightsWebhook},
	{route: "POST office/webhooks/{name}/test", summary: "Tells one of an event webhook.test; 502 if that is not delivered", answers: office.HookTest{}, rights: rightsWebhook},
	{route: "GET office/export/{vhost}/{queue}", summary: "The letters that filters select, one a line, as an import takes them", query: "reveal " + strings.Join(letter.Filters, " "), content: ndjson, rights: rightsLetters + " Where there are masks it needs reveal=true." + rightsReveal},
	{route: "POST office/import/{vhost}/{queue}", summary: "Puts the lines of an export into a queue, with their histories", asks: lines{}, answers: office.Imported{}, rights: "Needs permission to configure the queue and to write to it."},
	{route: "GET office/openapi.json", summary: "This document", answers: map[string]any{}, rights: "Everybody who may log in."},
}

const (
	groupQuery = "sort order limit cursor state source reason class text reveal"
	dropQuery  = "queue why reason limit cursor reveal"
	rightsRule = "Needs the tag policymaker."
	rightsJob  = "The job must be the user's, or the user has the tag policymaker."
)

// either is an answer of one of two types: the second with status 200, the first with the status of the operation.
type either struct{ first, second any }

// object is an object of JSON.
type object = map[string]any

// officeDocument is the document; it is made once.
var officeDocument = sync.OnceValue(func() jsonText {
	text, err := json.Marshal(describeOffice(officeOperations))
	if err != nil {
		return jsonText(`{}`) // impossible: it has texts, lists and objects
	}
	return text
})

func (s *server) getOpenAPI(r *request) (any, error) {
	if _, err := r.officeQuery(); err != nil {
		return nil, err
	}
	return withStatus{http.StatusOK, officeDocument()}, nil
}

// describeOffice makes the document of operations.
func describeOffice(operations []operation) object {
	d := describer{schemas: object{"Error": object{
		"type": "object", "required": []string{"error", "reason"}, "properties": object{"error": object{"type": "string"}, "reason": object{}},
	}}}
	paths := map[string]object{}
	for i := range operations {
		o := &operations[i]
		method, pattern, _ := strings.Cut(o.route, " ")
		at := "/api/" + pattern
		if paths[at] == nil {
			paths[at] = object{}
		}
		paths[at][strings.ToLower(method)] = d.operation(o, pattern)
	}
	return object{
		"openapi":    "3.1.0",
		"info":       object{"title": "Bartleby's Dead Letter Office", "version": "1", "description": "Dead letters: what they are, why they died, and jobs that send them back. Times are milliseconds since 1970 in keys that end in _ms."},
		"security":   []object{{"password": []string{}}},
		"paths":      paths,
		"components": object{"schemas": d.schemas, "securitySchemes": object{"password": object{"type": "http", "scheme": "basic"}}},
	}
}

// describer collects the schemas of named types.
type describer struct{ schemas object }

func (d *describer) operation(o *operation, pattern string) object {
	parameters := []object{}
	for _, segment := range strings.Split(pattern, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			parameters = append(parameters, object{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": object{"type": "string"}})
		}
	}
	for _, name := range strings.Fields(o.query) {
		schema := object{"type": "string"}
		switch name {
		case "limit":
			schema = object{"type": "integer", "minimum": 1}
		case "reveal", "dry_run":
			schema = object{"type": "boolean"}
		case "where":
			schema = object{"type": "array", "items": object{"type": "string"}}
		}
		parameters = append(parameters, object{"name": name, "in": "query", "schema": schema})
	}
	if o.tagged && !strings.HasPrefix(o.route, http.MethodGet) {
		parameters = append(parameters, object{"name": "If-Match", "in": "header", "schema": object{"type": "string"}, "description": "The ETag of what was read"})
	}
	responses := object{"default": object{"description": "What is wrong", "content": object{"application/json": object{"schema": object{"$ref": "#/components/schemas/Error"}}}}}
	respond := func(status int, answers any) {
		if status == http.StatusNoContent {
			responses[strconv.Itoa(status)] = object{"description": http.StatusText(status)}
			return
		}
		schema := object{}
		if answers != nil {
			schema = d.schema(reflect.TypeOf(answers))
		}
		responses[strconv.Itoa(status)] = object{"description": http.StatusText(status), "content": object{cmp.Or(o.content, "application/json"): object{"schema": schema}}}
	}
	both, ok := o.answers.(either)
	switch {
	case ok && o.status == 0:
		schema := object{"anyOf": []object{d.schema(reflect.TypeOf(both.first)), d.schema(reflect.TypeOf(both.second))}}
		responses["200"] = object{"description": "OK", "content": object{"application/json": object{"schema": schema}}}
	case ok:
		respond(o.status, both.first)
		respond(http.StatusOK, both.second)
	default:
		respond(cmp.Or(o.status, http.StatusOK), o.answers)
	}
	if o.tagged {
		responses["200"].(object)["headers"] = object{"ETag": object{"schema": object{"type": "string"}}}
	}
	described := object{"summary": o.summary, "operationId": operationID(o.route), "parameters": parameters, "responses": responses}
	if o.rights != "" {
		described["description"] = o.rights
	}
	if _, stream := o.asks.(lines); stream {
		described["requestBody"] = object{"required": true, "content": object{ndjson: object{"schema": object{}}}}
	} else if o.asks != nil {
		described["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": d.schema(reflect.TypeOf(o.asks))}}}
	}
	return described
}

// operationID is a name that programs make of the route: GET office/jobs/{id}/events is get_office_jobs_id_events.
func operationID(route string) string {
	return strings.ToLower(strings.NewReplacer(" ", "_", "/", "_", "{", "", "}", "", ".", "_").Replace(route))
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// schema describes what encoding/json makes of a type.
func (d *describer) schema(t reflect.Type) object {
	if t.Implements(marshaler) {
		return object{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return object{"anyOf": []object{d.schema(t.Elem()), {"type": "null"}}}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice, reflect.Array:
		return object{"type": "array", "items": d.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case reflect.Struct:
		return d.named(t)
	case reflect.Interface:
		return object{}
	}
	return object{"type": "integer"}
}

// named is a reference to the schema of a struct.
func (d *describer) named(t reflect.Type) object {
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	reference := object{"$ref": "#/components/schemas/" + name}
	if d.schemas[name] != nil {
		return reference
	}
	described := object{"type": "object", "additionalProperties": false}
	d.schemas[name] = described // before its fields: one may be of its own type
	properties, required := object{}, []string{}
	d.fields(t, properties, &required)
	described["properties"] = properties
	if slices.Sort(required); len(required) > 0 {
		described["required"] = slices.Compact(required)
	}
	return reference
}

// fields adds the fields of a struct as encoding/json names them. A field of the outer struct goes before one that is embedded.
func (d *describer) fields(t reflect.Type, properties object, required *[]string) {
	var embedded []reflect.Type
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && tag == "":
			embedded = append(embedded, f.Type)
			continue
		case tag == "-" || !f.IsExported():
			continue
		}
		name := cmp.Or(tag, f.Name)
		if properties[name] != nil {
			continue
		}
		if properties[name] = d.schema(f.Type); strings.Contains(options, "string") {
			properties[name] = object{"type": "string"}
		}
		if !strings.Contains(options, "omitempty") {
			*required = append(*required, name)
		}
	}
	for _, e := range embedded {
		d.fields(e, properties, required)
	}
}

package ctl

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// adminObject is a kind of object that a verb takes, and the KEY=VALUE arguments that describe it.
type adminObject struct {
	name      string
	mandatory []string    // keys; "a|b" is at least one of them
	optional  []adminFlag // keys that may be left out
	json      []string    // keys whose values are JSON
	path      string      // of the API, below /api; {key} is the value of that key
	post      bool        // declared by POST
}

// adminFlag is a key that may be left out. A value that is nil is not sent then.
type adminFlag struct {
	key   string
	value any
}

var declarable = []adminObject{
	{
		name: "exchange", mandatory: []string{"name", "type"}, json: []string{"arguments"}, path: "/exchanges/{vhost}/{name}",
		optional: []adminFlag{{"auto_delete", "false"}, {"durable", "true"}, {"internal", "false"}, {"arguments", object{}}},
	},
	{
		name: "queue", mandatory: []string{"name"}, json: []string{"arguments"}, path: "/queues/{vhost}/{name}",
		optional: []adminFlag{{"auto_delete", "false"}, {"durable", "true"}, {"arguments", object{}}, {"node", nil}, {"queue_type", nil}},
	},
	{
		name: "binding", mandatory: []string{"source", "destination"}, json: []string{"arguments"}, post: true,
		path:     "/bindings/{vhost}/e/{source}/{destination_char}/{destination}",
		optional: []adminFlag{{"destination_type", "queue"}, {"routing_key", ""}, {"arguments", object{}}},
	},
	{name: "vhost", mandatory: []string{"name"}, path: "/vhosts/{name}", optional: []adminFlag{{"tracing", nil}, {"default_queue_type", nil}}},
	{
		name: "user", mandatory: []string{"name", "password|password_hash", "tags"}, path: "/users/{name}",
		optional: []adminFlag{{"hashing_algorithm", nil}},
	},
	{name: "permission", mandatory: []string{"vhost", "user", "configure", "write", "read"}, path: "/permissions/{vhost}/{user}"},
	{name: "parameter", mandatory: []string{"component", "name", "value"}, json: []string{"value"}, path: "/parameters/{component}/{vhost}/{name}"},
	{
		name: "policy", mandatory: []string{"name", "pattern", "definition"}, json: []string{"definition", "priority"}, path: "/policies/{vhost}/{name}",
		optional: []adminFlag{{"priority", 0}, {"apply-to", nil}},
	},
	{
		name: "operator_policy", mandatory: []string{"name", "pattern", "definition"}, json: []string{"definition", "priority"},
		path:     "/operator-policies/{vhost}/{name}",
		optional: []adminFlag{{"priority", 0}, {"apply-to", nil}},
	},
	{name: "vhost_limit", mandatory: []string{"vhost", "name", "value"}, json: []string{"value"}, path: "/vhost-limits/{vhost}/{name}"},
	{name: "user_limit", mandatory: []string{"user", "name", "value"}, json: []string{"value"}, path: "/user-limits/{user}/{name}"}, // not RabbitMQ's
}

var deletable = []adminObject{
	{name: "exchange", mandatory: []string{"name"}, path: "/exchanges/{vhost}/{name}"},
	{name: "queue", mandatory: []string{"name"}, path: "/queues/{vhost}/{name}"},
	{
		name: "binding", mandatory: []string{"source", "destination_type", "destination"}, optional: []adminFlag{{"properties_key", "~"}},
		path: "/bindings/{vhost}/e/{source}/{destination_char}/{destination}/{properties_key}",
	},
	{name: "vhost", mandatory: []string{"name"}, path: "/vhosts/{name}"},
	{name: "user", mandatory: []string{"name"}, path: "/users/{name}"},
	{name: "permission", mandatory: []string{"vhost", "user"}, path: "/permissions/{vhost}/{user}"},
	{name: "parameter", mandatory: []string{"component", "name"}, path: "/parameters/{component}/{vhost}/{name}"},
	{name: "policy", mandatory: []string{"name"}, path: "/policies/{vhost}/{name}"},
	{name: "operator_policy", mandatory: []string{"name"}, path: "/operator-policies/{vhost}/{name}"},
	{name: "vhost_limit", mandatory: []string{"vhost", "name"}, path: "/vhost-limits/{vhost}/{name}"},
	{name: "user_limit", mandatory: []string{"user", "name"}, path: "/user-limits/{user}/{name}"},
}

var closable = []adminObject{{name: "connection", mandatory: []string{"name"}, path: "/connections/{name}"}}

var purgeable = []adminObject{{name: "queue", mandatory: []string{"name"}, path: "/queues/{vhost}/{name}/contents"}}

func objectNames(objects []adminObject) (names []string) {
	for _, o := range objects {
		names = append(names, o.name)
	}
	return names
}

// takes says whether the object has that key.
func (o *adminObject) takes(key string) bool {
	for _, keys := range o.mandatory {
		if slices.Contains(strings.Split(keys, "|"), key) {
			return true
		}
	}
	return slices.ContainsFunc(o.optional, func(f adminFlag) bool { return f.key == key })
}

// parse reads KEY=VALUE arguments. The body is what to send: what was given, and the values of keys that were left out.
func (a *admin) parse(o *adminObject, args []string) (at string, body object, err error) {
	body = object{}
	for _, f := range o.optional {
		if f.value != nil {
			body[f.key] = f.value
		}
	}
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok {
			return "", nil, adminUsageError("Argument %q not in the name=value format", arg)
		}
		if !o.takes(key) {
			return "", nil, adminUsageError("Argument %q is not recognised", key)
		}
		if !slices.Contains(o.json, key) {
			body[key] = value
			continue
		}
		text := json.RawMessage(pythonWords(value))
		if !json.Valid(text) {
			return "", nil, &failure{1, "ERROR: Could not parse JSON:\n  " + value}
		}
		body[key] = text
	}
	for _, keys := range o.mandatory {
		choice := strings.Split(keys, "|")
		if slices.ContainsFunc(choice, func(key string) bool { _, ok := body[key]; return ok }) {
			continue
		}
		if len(choice) > 1 {
			return "", nil, adminUsageError("one of mandatory arguments \"['%s']\" is required", strings.Join(choice, "', '"))
		}
		return "", nil, adminUsageError("mandatory argument %q is required", keys)
	}
	if !slices.Contains(o.mandatory, "vhost") {
		if body["vhost"] = a.vhost; a.vhost == "" {
			body["vhost"] = a.declareVHost
		}
	}
	at, err = o.at(body)
	return at, body, err
}

// at is the object's path.
func (o *adminObject) at(values object) (string, error) {
	segments := strings.Split(o.path, "/")
	for i, segment := range segments {
		key, ok := strings.CutPrefix(segment, "{")
		if !ok {
			continue
		}
		key = strings.TrimSuffix(key, "}")
		char := key == "destination_char" // q or e
		if char {
			key = "destination_type"
		}
		value, _ := values[key].(string)
		if value == "" && key == "exchange" {
			value = "amq.default" // the API's name of the exchange without one
		}
		if value == "" {
			return "", adminUsageError("Argument %q must not be empty", key)
		}
		if char {
			value = value[:1]
		}
		segments[i] = quote(value)
	}
	return strings.Join(segments, "/"), nil
}

// object is the object that the first argument names, its path, and what to send.
func (a *admin) object(objects []adminObject) (o *adminObject, at string, body object, err error) {
	if len(a.args) == 0 {
		return nil, "", nil, adminUsageError("Type not specified")
	}
	i := slices.IndexFunc(objects, func(o adminObject) bool { return o.name == a.args[0] })
	if i < 0 {
		return nil, "", nil, adminUsageError("Type %s not recognised", a.args[0])
	}
	at, body, err = a.parse(&objects[i], a.args[1:])
	return &objects[i], at, body, err
}

func (a *admin) declare() error {
	o, at, body, err := a.object(declarable)
	if err != nil {
		return err
	}
	if kind, ok := body["queue_type"]; ok { // short for an argument of the queue
		arguments := map[string]json.RawMessage{}
		if text, ok := body["arguments"].(json.RawMessage); ok && json.Unmarshal(text, &arguments) != nil {
			return adminUsageError("Argument \"arguments\" must be a JSON object")
		}
		if arguments["x-queue-type"], err = json.Marshal(kind); err != nil {
			return err
		}
		body["arguments"] = arguments
	}
	method := http.MethodPut
	if o.post {
		method = http.MethodPost
	}
	text, err := encode(body)
	if err != nil {
		return err
	}
	if _, err := a.send(method, at, []byte(text)); err != nil {
		return err
	}
	a.say("%s declared", o.name)
	return nil
}

// remove is delete, close and purge.
func (a *admin) remove(objects []adminObject, done string) error {
	o, at, _, err := a.object(objects)
	if err != nil {
		return err
	}
	if _, err := a.send(http.MethodDelete, at, nil); err != nil {
		return err
	}
	a.say("%s %s", o.name, done)
	return nil
}

// quote is a segment of a path, with the escapes that Python makes, because messages show it.
func quote(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }

// pythonWords lets scripts in Python write its True and False.
func pythonWords(text string) string {
	switch text {
	case "True", "False":
		return strings.ToLower(text)
	}
	return text
}

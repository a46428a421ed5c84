package definitions

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/expression"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// How says how to import.
type How struct {
	// SkipUnsupported leaves out, with a warning each, what this broker has not: queues and exchanges of other types with
	// their bindings, and policies with an expression that cannot be read.
	SkipUnsupported bool
}

// Obstacle is an object that cannot be imported, and why.
type Obstacle struct {
	Kind   string `json:"kind"` // as the key of the file that has it
	VHost  string `json:"vhost,omitempty"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
	// Unsupported says that How.SkipUnsupported leaves it out.
	Unsupported bool `json:"unsupported"`
}

// String describes the obstacle in one line.
func (o Obstacle) String() string { return o.object() + ": " + o.Reason }

func (o Obstacle) object() string {
	text := fmt.Sprintf("%s '%s'", singular[o.Kind], o.Name)
	if o.VHost != "" {
		text += fmt.Sprintf(" in vhost '%s'", o.VHost)
	}
	return text
}

var singular = map[string]string{
	"users": "user", "vhosts": "vhost", "permissions": "permissions of user", "topic_permissions": "topic permissions of user", "exchanges": "exchange",
	"global_parameters": "global parameter", "policies": "policy", "parameters": "parameter", "queues": "queue", "bindings": "binding of exchange",
}

// Check imports a file into a broker that is made for it and then thrown away, and returns all that stands in the way
// instead of stopping at the first. o has the rules of the real one. present are definitions that are there already, as
// text; nil: none. vhost is as in ImportFor. handles says which components of parameters are not looked at. An error means that the file as a
// whole cannot be read, or that ctx has ended.
func Check(ctx context.Context, o broker.Options, present, text []byte, vhost message.VHost, handles func(component string) bool) (obstacles []Obstacle, warnings []string, err error) {
	b, err := broker.Open(broker.Options{Dir: "data", FS: vfs.NewMem(), NodeName: cmp.Or(o.NodeName, "rabbit@localhost"), Strict: o.Strict, Topology: o.Topology, ApsaraMQ: o.ApsaraMQ})
	if err != nil {
		return nil, nil, err
	}
	im := &importer{b: b.By(internalUser), user: internalUser, vhost: vhost, collect: true, unchecked: handles}
	if present != nil {
		before := &importer{b: b.By(internalUser), user: internalUser, collect: true, unchecked: handles}
		err = before.all(ctx, present)
	}
	if err == nil {
		err = im.all(ctx, text)
	}
	closed := b.Close()
	return im.obstacles, im.warnings, cmp.Or(err, closed)
}

// obstacle describes an object that was refused.
func (im *importer) obstacle(kind string, o map[string]any, err error) Obstacle {
	text := func(key string) string {
		s, _ := o[key].(string)
		return s
	}
	b := Obstacle{Kind: kind, VHost: cmp.Or(string(im.vhost), text("vhost")), Name: text("name"), Reason: err.Error(), Unsupported: im.unsupported(kind, o)}
	switch kind {
	case "permissions", "topic_permissions":
		b.Name = text("user")
	case "bindings":
		b.Name = text("source")
		b.Reason = fmt.Sprintf("to %s '%s' with the key '%s': %s", text("destination_type"), text("destination"), text("routing_key"), b.Reason)
	}
	return b
}

// unsupported says whether a refused object is one of How.SkipUnsupported.
func (im *importer) unsupported(kind string, o map[string]any) bool {
	switch kind {
	case "queues":
		t, _ := o["type"].(string)
		if arguments, ok := o["arguments"].(map[string]any); ok && arguments["x-queue-type"] != nil {
			t, _ = arguments["x-queue-type"].(string)
		}
		return t == "stream" || t == "mqtt_qos0" || t == "rabbit_mqtt_qos0_queue"
	case "exchanges":
		t, _ := o["type"].(string)
		return otherExchanges[t]
	case "policies":
		return unreadable(o["pattern"])
	case "parameters":
		value, _ := o["value"].(map[string]any)
		return o["component"] == OperatorPolicyComponent && unreadable(value["pattern"])
	}
	return false
}

// unreadable says whether a value is an expression that cannot be read.
func unreadable(v any) bool {
	text, ok := v.(string)
	if !ok {
		return false
	}
	_, err := expression.CompileName(text)
	return err != nil
}

// warnUnreadable names the expressions of permissions that cannot be read: they match nothing, as in RabbitMQ.
func (im *importer) warnUnreadable(kind string, o map[string]any, v message.VHost, keys ...string) {
	for _, key := range keys {
		if unreadable(o[key]) {
			im.warn("%s '%v' in vhost '%s': the expression %s = %q cannot be read, and matches nothing", singular[kind], o["user"], v, key, o[key])
		}
	}
}

// otherExchanges are the types that plugins of RabbitMQ's have and this broker has not.
var otherExchanges = map[string]bool{
	"x-random": true, "x-recent-history": true, "x-modulus-hash": true, "x-jms-topic": true, "x-federation-upstream": true, "x-local-random": true,
	"x-rtopic": true, "x-message-deduplication": true, "x-deduplication": true, "x-lvc": true, "x-script": true,
}

// end is one end of a binding that was left out.
type end struct {
	vhost message.VHost
	kind  string // queue or exchange
	name  string
}

// refused deals with an object that was refused. It returns the error that stops the import, if it does.
func (im *importer) refused(kind string, o map[string]any, err error) error {
	b := im.obstacle(kind, o, err)
	if kind == "queues" || kind == "exchanges" {
		if im.out == nil {
			im.out = map[end]bool{}
		}
		im.out[end{message.VHost(b.VHost), singular[kind], b.Name}] = true
	}
	switch {
	case im.collect:
		im.obstacles = append(im.obstacles, b)
		return nil
	case im.how.SkipUnsupported && b.Unsupported:
		im.warn("%s is left out: %s", b.object(), b.Reason)
		return nil
	case im.b.Strict:
		return err // as RabbitMQ says it
	case kind != "bindings" && (strings.Contains(err.Error(), "'"+b.Name+"'") || strings.Contains(err.Error(), strconv.Quote(b.Name))):
		return err // it names the object
	}
	switch err := err.(type) {
	case *topology.Error:
		named := *err
		named.Text = b.String()
		return &named
	case *MalformedError:
		return malformed(b.String())
	}
	return err
}

// leadsOut says whether an end of a binding was left out, and the binding with it.
func (im *importer) leadsOut(o map[string]any) bool {
	if len(im.out) == 0 {
		return false
	}
	v := im.vhost
	if name, ok := o["vhost"].(string); ok && v == "" {
		v = message.VHost(name)
	}
	source, _ := o["source"].(string)
	destination, _ := o["destination"].(string)
	kind, _ := o["destination_type"].(string)
	return im.out[end{v, "exchange", source}] || im.out[end{v, kind, destination}]
}

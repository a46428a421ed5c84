package api

import (
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// In strict mode answers have no keys that RabbitMQ's do not have, and heed the parameters of a query where RabbitMQ's do:
// a program that compares both, or decodes strictly, sees no difference. In default mode every list can be paged, and every
// answer reduced to columns.

// ownKeys are the keys of queues, exchanges, virtual hosts and the overview that RabbitMQ does not have.
var ownKeys = []string{"annotations_dropped", "dead_letters", "features", "messages_in_transit", "messages_set_aside", "messages_stranded", "profile"}

// pagedLists are the lists that RabbitMQ pages. It answers the others whole.
var pagedLists = []string{
	"channels", "connections", "connections/username/{user}", "exchanges", "exchanges/{vhost}",
	"queues", "queues/detailed", "queues/{vhost}", "users", "users/without-permissions", "users/{user}/queues", "vhosts",
}

// unpagedAnswers are those of which RabbitMQ does not read the paging.
var unpagedAnswers = []string{"all-configuration", "config/effective", "definitions", "definitions/{vhost}", "login"}

// unpageableAnswers are those that RabbitMQ cannot page although it reads the paging, beside the checks of health: it answers 500.
var unpageableAnswers = []string{"aliveness-test/{vhost}", "channels/{channel}", "connections/{connection}", "version", "vhosts"}

// rangedAnswers are those with samples of a span of time.
var rangedAnswers = []string{
	"channels", "channels/{channel}", "connections", "connections/{connection}", "connections/{connection}/channels", "exchanges",
	"exchanges/{vhost}", "exchanges/{vhost}/{exchange}", "nodes", "nodes/{node}", "overview", "queues", "queues/detailed", "queues/{vhost}",
	"queues/{vhost}/{queue}", "vhosts", "vhosts/{vhost}", "vhosts/{vhost}/channels", "vhosts/{vhost}/connections",
}

// statisticsOnly are the answers that have nothing to show without statistics.
var statisticsOnly = []string{"consumers", "consumers/{vhost}", "vhosts/{vhost}/channels"}

// wholeAnswers are what RabbitMQ does not reduce to columns.
var wholeAnswers = []string{
	"aliveness-test/{vhost}", "all-configuration", "channels/{channel}", "connections/{connection}", "definitions", "definitions/{vhost}", "deprecated-features",
	"deprecated-features/used", "vhost-limits", "vhost-limits/{vhost}", "version", "vhosts",
}

func (r *request) isHealthCheck() bool { return strings.HasPrefix(r.rt.pattern, "health") }

// without says whether the request asks for an answer without statistics, as only RabbitMQ has it.
func (r *request) without() bool { return r.s.b.Strict && r.flag("disable_stats") }

// checkQuery refuses what RabbitMQ refuses in the query of a GET.
func (r *request) checkQuery() *failure {
	if !r.s.b.Strict || r.Method != http.MethodGet {
		return nil
	}
	if r.without() {
		if slices.Contains(statisticsOnly, r.rt.pattern) {
			return badRequest("Stats in management UI are disabled on this node")
		}
		return nil
	}
	if !slices.Contains(rangedAnswers, r.rt.pattern) {
		return nil
	}
	for _, name := range []string{lengthsSpan, ratesSpan, dataSpan, nodeSpan} {
		age, step, ok := numbersOf(r.Request, name)
		if ok && (age <= 0 || step <= 0 || age/step > maxStrictPoints) {
			bad := badRequest(fmt.Sprintf("Invalid range parameters: age %d, incr %d", age, step))
			if slices.Contains(pagedLists, r.rt.pattern) && !strings.HasPrefix(r.rt.pattern, "c") { // of connections and channels not
				bad.kind = "invalid_range_parameters"
			}
			return bad
		}
	}
	return nil
}

// checkPaging refuses the paging of an answer that cannot be paged. RabbitMQ fails there, without a word.
func (r *request) checkPaging() *failure {
	if !r.s.b.Strict || slices.Contains(unpagedAnswers, r.rt.pattern) {
		return nil
	}
	query := r.URL.Query()
	_, _, bad := pageOf(query)
	unpageable := r.isHealthCheck() || slices.Contains(unpageableAnswers, r.rt.pattern)
	switch {
	case bad != nil && !slices.Contains(pagedLists, r.rt.pattern), bad == nil && unpageable && query.Has("page"):
		return crashed
	}
	return bad
}

// briefKeys are the keys of connections, channels and nodes that RabbitMQ shows without statistics.
var briefKeys = map[string][]string{
	"channel": {"connection_details", "name", "node", "number", "user", "user_who_performed_action", "vhost"},
	"node":    {"being_drained", "name", "running", "type"},
}

// brief leaves of an object only what RabbitMQ shows without statistics, where the request asks for that.
func (r *request) brief(kind string, object map[string]any) map[string]any {
	if !r.without() {
		return object
	}
	keys := briefKeys[kind]
	maps.DeleteFunc(object, func(key string, _ any) bool { return !slices.Contains(keys, key) })
	return object
}

// jsonOnly are the first segments of the patterns whose bodies RabbitMQ takes as application/json only, definitions also as a form.
var jsonOnly = []string{"definitions", "feature-flags", "operator-policies", "user-limits", "vhost-limits"}

// wantsOtherType says whether RabbitMQ would refuse the content type of the body.
func (r *request) wantsOtherType() bool {
	first, _, _ := strings.Cut(r.rt.pattern, "/")
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return slices.Contains(jsonOnly, first) && (err != nil || kind != "application/json" && (first != "definitions" || kind != "multipart/form-data"))
}

// strictAccess is what RabbitMQ asks for where we ask for something else, by pattern.
var strictAccess = map[string]access{
	"healthchecks/node": managing, "healthchecks/node/{node}": managing,
	"queues/{vhost}/{queue}/actions": administers, "user-limits/{user}": managing, "users/{user}/queues": managing,
}

// needs is what a user's tags must allow for the request.
func (r *request) needs() access {
	if a, other := strictAccess[r.rt.pattern]; other && r.s.b.Strict {
		return a
	}
	return r.rt.access
}

// refusal is the text for a user whose tags do not allow the request.
func (r *request) refusal() string {
	if r.s.b.Strict && strings.HasPrefix(r.rt.pattern, "global-parameters") {
		return accessTexts[policies]
	}
	text := accessTexts[r.needs()]
	if tag := accessTags[r.needs()]; tag != "" && strings.HasPrefix(r.rt.pattern, "office/") {
		text += ": this needs the tag " + tag + ", which an administrator gives (set_user_tags)"
	}
	return text
}

// accessTags are the tags that give access, besides administrator.
var accessTags = map[access]string{administers: "administrator", monitoring: "monitoring", policies: "policymaker"}

// everywhere are the patterns that RabbitMQ answers for virtual hosts that do not exist, too.
var everywhere = []string{
	"bindings/{vhost}/e/{source}/e/{destination}", "bindings/{vhost}/e/{source}/q/{queue}",
	"health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}",
	"health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}/pattern/{pattern}", "queues/{vhost}/{queue}/bindings",
}

// needsVHost says whether the virtual host of the path must exist.
func (r *request) needsVHost() bool {
	return !r.s.b.Strict || r.Method != http.MethodGet || !slices.Contains(everywhere, r.rt.pattern)
}

// query is the part of the query that the answer heeds.
func (r *request) query() url.Values {
	q := r.URL.Query()
	if !r.s.b.Strict {
		if q.Get("columns") == "" {
			q.Del("columns")
		}
		return q
	}
	if !slices.Contains(pagedLists, r.rt.pattern) {
		q.Del("page")
		q.Del("page_size")
		q.Del("name")
		q.Del("use_regex")
	}
	if r.isHealthCheck() || slices.Contains(wholeAnswers, r.rt.pattern) {
		q.Del("columns")
	}
	return q
}

// shown is an object as the answer has it: in strict mode without our own keys, unless the query names them. An object of which
// nothing is left is an empty list there, as it is in Erlang.
func (r *request) shown(object map[string]any, wanted columns) any {
	if wanted != nil {
		if r.s.b.Strict {
			wanted = wanted.whole()
		}
		if object = wanted.of(object); r.s.b.Strict && len(object) == 0 {
			return []any{}
		}
		return object
	}
	if r.s.b.Strict {
		object = maps.Clone(object) // others may have it
		for _, key := range ownKeys {
			delete(object, key)
		}
	}
	return object
}

// wholeColumns are the values in which RabbitMQ selects nothing.
var wholeColumns = []string{"arguments", "client_properties", "definition", "effective_policy_definition"}

// whole are the columns as RabbitMQ reads them.
func (c columns) whole() columns {
	read := make(columns, len(c))
	for i, path := range c {
		read[i] = path
		if first, _, more := strings.Cut(path, "."); more && slices.Contains(wholeColumns, first) {
			read[i] = first
		}
	}
	return read
}

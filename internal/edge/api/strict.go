package api

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// In strict mode answers have no keys that RabbitMQ's do not have, and heed the parameters of a query where RabbitMQ's do:
// a program that compares both, or decodes strictly, sees no difference. In default mode every list can be paged, and every
// answer reduced to columns.

// ownKeys are the keys of queues, exchanges, virtual hosts and the overview that RabbitMQ does not have.
var ownKeys = []string{"dead_letters", "features", "messages_in_transit", "messages_set_aside", "messages_stranded", "profile"}

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
var statisticsOnly = []string{"channels", "channels/{channel}", "consumers", "consumers/{vhost}", "vhosts/{vhost}/channels"}

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

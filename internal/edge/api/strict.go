package api

import (
	"maps"
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
	"queues", "queues/detailed", "queues/{vhost}", "users", "users/without-permissions", "vhosts",
}

// wholeAnswers are what RabbitMQ does not reduce to columns.
var wholeAnswers = []string{
	"aliveness-test/{vhost}", "channels/{channel}", "connections/{connection}", "definitions", "definitions/{vhost}", "deprecated-features",
	"vhost-limits", "vhost-limits/{vhost}", "vhosts",
}

// query is the part of the query that the answer heeds.
func (r *request) query() url.Values {
	q := r.URL.Query()
	if !r.s.b.Strict {
		return q
	}
	if !slices.Contains(pagedLists, r.rt.pattern) {
		q.Del("page")
		q.Del("page_size")
		q.Del("name")
		q.Del("use_regex")
	}
	if strings.HasPrefix(r.rt.pattern, "health/") || slices.Contains(wholeAnswers, r.rt.pattern) {
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

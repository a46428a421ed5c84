package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// access is what a user's tags must allow (BR-15.3).
type access uint8

const (
	managing    access = iota // any tag that lets a user in
	policies                  // policymaker
	monitoring                // monitoring
	administers               // administrator
	open                      // anybody: the handler looks for itself
)

// route is one resource and method. The pattern's segments in braces are
// parameters; {vhost} is also checked: it must exist and be the user's to see.
type route struct {
	method, pattern string
	access          access
	handle          func(*request) (any, error)
}

// ofAll are the first segments of resources whose lists grow with what is declared and who is connected.
var ofAll = []string{"overview", "definitions", "all-configuration", "queues", "exchanges", "bindings", "connections", "channels", "consumers", "vhosts", "permissions", "users"}

// readsAll says whether the answer may take long because it is about all there is: a list, or a whole of it. The office's lists of letters have
// bounds of their own.
func (r *route) readsAll() bool {
	first, _, _ := strings.Cut(r.pattern, "/")
	if r.method != http.MethodGet {
		return false
	}
	if r.pattern == "office/topology/{vhost}" || strings.HasPrefix(r.pattern, "office/lint") {
		return true
	}
	last := r.pattern[strings.LastIndexByte(r.pattern, '/')+1:]
	one := strings.HasPrefix(last, "{") && last != "{vhost}" || last == "{vhost}" && first == "vhosts"
	return slices.Contains(ofAll, first) && !one
}

// routeTable finds routes by path. http.ServeMux is not used: it answers 404
// where a parameter is exactly %2F, which is the default virtual host.
type routeTable struct {
	byFirst map[string][]*resource // by the first segment
}

// resource is the methods of one pattern.
type resource struct {
	segments []string
	byName   map[string]*route
	allow    string
}

func newRouteTable(routes []route) *routeTable {
	t := &routeTable{byFirst: map[string][]*resource{}}
	patterns := map[string]*resource{}
	for i := range routes {
		r := &routes[i]
		p := patterns[r.pattern]
		if p == nil {
			p = &resource{segments: strings.Split(r.pattern, "/"), byName: map[string]*route{}}
			patterns[r.pattern] = p
			t.byFirst[p.segments[0]] = append(t.byFirst[p.segments[0]], p)
		}
		p.byName[r.method] = r
	}
	for _, list := range t.byFirst {
		for _, p := range list {
			p.setAllow()
		}
		// Of patterns that fit, one with more fixed segments is meant.
		slices.SortStableFunc(list, func(a, b *resource) int { return b.fixed() - a.fixed() })
	}
	return t
}

func (p *resource) setAllow() {
	var names []string
	if p.byName[http.MethodGet] != nil {
		names = append(names, http.MethodHead)
	}
	for _, m := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete} {
		if p.byName[m] != nil {
			names = append(names, m)
		}
	}
	p.allow = strings.Join(append(names, http.MethodOptions), ", ")
}

func (p *resource) fixed() (n int) {
	for _, s := range p.segments {
		if !strings.HasPrefix(s, "{") {
			n++
		}
	}
	return n
}

// find returns the resource for a path and the parameters in it; nil if there is none.
func (t *routeTable) find(path []string) (*resource, map[string]string) {
	if len(path) == 0 {
		return nil, nil
	}
	for _, p := range t.byFirst[path[0]] {
		if params, ok := p.match(path); ok {
			return p, params
		}
	}
	return nil, nil
}

func (p *resource) match(path []string) (map[string]string, bool) {
	if len(path) != len(p.segments) {
		return nil, false
	}
	params := map[string]string{}
	for i, s := range p.segments {
		if !strings.HasPrefix(s, "{") {
			if s != path[i] {
				return nil, false
			}
			continue
		}
		name := s[1 : len(s)-1]
		if path[i] == "" && !mayBeEmpty(name) {
			return nil, false
		}
		params[name] = path[i]
	}
	return params, true
}

// mayBeEmpty says whether a parameter's segment may be empty: only of exchanges one, the
// default one, has the empty name.
func mayBeEmpty(parameter string) bool {
	return parameter == "exchange" || parameter == "source" || parameter == "destination"
}

// splitPath returns the decoded segments of a path below /api. An encoded slash
// is part of a segment; names such as ".." have no meaning. A slash at the end has
// none either.
func splitPath(escaped string) ([]string, bool) {
	rest, ok := strings.CutPrefix(escaped, "/api/")
	if !ok {
		return nil, false
	}
	segments := strings.Split(strings.TrimSuffix(rest, "/"), "/")
	for i, s := range segments {
		decoded, err := url.PathUnescape(s)
		if err != nil {
			return nil, false
		}
		segments[i] = decoded
	}
	return segments, true
}

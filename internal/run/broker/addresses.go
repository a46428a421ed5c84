package broker

import (
	"net/url"
	"strings"
)

// withoutPassword hides the password of an address, and parameters of its query that name one.
func withoutPassword(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return s
	}
	at, question := strings.LastIndexByte(rest, '@'), strings.IndexByte(rest, '?')
	if question >= 0 && question < at { // nobody knows where the password ends
		return scheme + "://****"
	}
	if at >= 0 {
		if user, _, has := strings.Cut(rest[:at], ":"); has {
			rest = user + ":****" + rest[at:]
		}
	}
	rest, query, has := strings.Cut(rest, "?")
	if !has {
		return scheme + "://" + rest
	}
	list := strings.Split(query, "&")
	for i, p := range list {
		if key, _, ok := strings.Cut(p, "="); ok && strings.Contains(strings.ToLower(key), "pass") {
			list[i] = key + "=****"
		}
	}
	return scheme + "://" + rest + "?" + strings.Join(list, "&")
}

// WithoutLogin is an address without user, password and query, as RabbitMQ shows those of shovels. Texts of another form stay.
func WithoutLogin(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return text
	}
	authority, path, hasPath := strings.Cut(rest, "/")
	if _, err := url.Parse(text); err != nil { // then the password may have the slash
		authority, path, hasPath = rest, "", false
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		authority = authority[at+1:]
	}
	if hasPath {
		path = "/" + path
	}
	path, _, _ = strings.Cut(path, "?") // may hold the password of a key
	authority, _, _ = strings.Cut(authority, "?")
	return scheme + "://" + authority + path
}

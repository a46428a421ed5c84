package session10

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"bartleby.mq/internal/wire/erlterm"
)

// Requests to the node /management name what they want by a URI (RFC 3986). RabbitMQ reads it by Erlang's uri_string: the texts of
// refusals are that module's.

// requested is what the URI of a request names.
type requested struct {
	path  string // normal form, still encoded
	query map[string]any
}

// parseRequested reads the URI of a request.
func parseRequested(uri string) (requested, error) {
	path, query, fragment, bad := splitURI(uri)
	if bad >= 0 {
		return requested{}, refuse("400", "failed to normalize URI '%s': invalid_uri %s", uri, printedChar(bad))
	}
	for _, part := range []string{path, query, fragment} {
		if octet := badPercent(part); octet != "" {
			return requested{}, refuse("400", "failed to normalize URI '%s': invalid_percent_encoding %s", uri, erlterm.Format(octet))
		}
	}
	query = normalPercent(query)
	entries, octet := parseQuery(query)
	if octet != "" {
		return requested{}, refuse("400", "failed to dissect query '%s': invalid_input %s", query, erlterm.CharList(octet))
	}
	return requested{withoutDots(normalPercent(path)), entries}, nil
}

// splitURI divides a URI that has no scheme. bad is its first character that must not be there.
func splitURI(uri string) (path, query, fragment string, bad rune) {
	parts := [...]*string{&path, &query, &fragment}
	part, begin := 0, 0
	for i, r := range uri {
		switch {
		case r == '#' && part < 2, r == '?' && part == 0:
			*parts[part] = uri[begin:i]
			begin = i + 1
			if part = 1; r == '#' {
				part = 2
			}
		case !inSegment(r) && r != '/' && (r != '?' || part == 0):
			return "", "", "", r
		}
	}
	*parts[part] = uri[begin:]
	return path, query, fragment, -1
}

// printedChar is a character as Erlang prints the list of it.
func printedChar(r rune) string {
	if r < 0x100 {
		return erlterm.CharList(string([]byte{byte(r)}))
	}
	return `"` + string(r) + `"`
}

// inSegment says whether a segment of a path may have the character as it is (RFC 3986, 3.3), or begin an encoded octet by it.
func inSegment(r rune) bool {
	return r < utf8.RuneSelf && (isUnreserved(byte(r)) || strings.ContainsRune("%!$&'()*+,;=:@", r))
}

func isUnreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// badPercent is the first percent sign with two characters behind it that are not the digits of an octet, and these. One with less behind it
// stays what it is.
func badPercent(s string) string {
	for i := 0; i+2 < len(s); i++ {
		if _, ok := octetAt(s, i); s[i] == '%' && !ok {
			return s[i : i+3]
		}
	}
	return ""
}

// octetAt is the encoded octet at a place.
func octetAt(s string, i int) (octet byte, ok bool) {
	if s[i] != '%' || i+2 >= len(s) {
		return 0, false
	}
	b, err := hex.DecodeString(s[i+1 : i+3])
	if err != nil {
		return 0, false
	}
	return b[0], true
}

// normalPercent decodes the octets that need not be encoded, and writes the others with capital letters (RFC 3986, 6.2.2).
func normalPercent(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		octet, ok := octetAt(s, i)
		switch {
		case !ok:
			b.WriteByte(s[i])
			continue
		case isUnreserved(octet):
			b.WriteByte(octet)
		default:
			b.WriteString(strings.ToUpper(s[i : i+3]))
		}
		i += 2
	}
	return b.String()
}

// withoutDots is a path without the segments "." and ".." (RFC 3986, 5.2.4).
func withoutDots(path string) string {
	if !strings.Contains(path, "/.") {
		return path
	}
	var kept []string
	segments := strings.Split(path, "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch {
		case s == "..":
			kept = kept[:max(min(1, len(kept)), len(kept)-1)]
		case s != ".":
			kept = append(kept, s)
			continue
		}
		if last {
			kept = append(kept, "")
		}
	}
	return strings.Join(kept, "/")
}

// parseQuery reads the entries of a query, of equal keys the last. One without a value is true. bad is the first octet that is no UTF-8.
func parseQuery(query string) (entries map[string]any, bad string) {
	entries = map[string]any{}
	for part := range strings.SplitSeq(query, "&") {
		if part == "" {
			continue
		}
		k, v, valued := strings.Cut(part, "=")
		key, value := formDecode(k), formDecode(v)
		for _, s := range []string{key, value} {
			if i := invalidUTF8(s); i >= 0 {
				return nil, s[i : i+1]
			}
		}
		entries[key] = value
		if !valued {
			entries[key] = true
		}
	}
	return entries, ""
}

func formDecode(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		octet, ok := octetAt(s, i)
		switch {
		case ok:
			b.WriteByte(octet)
			i += 2
		case s[i] == '+':
			b.WriteByte(' ')
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// invalidUTF8 is where the first octet is that is no part of a character, or -1.
func invalidUTF8(s string) int {
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
			return i
		}
	}
	return -1
}

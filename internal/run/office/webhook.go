package office

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"bartleby.mq/internal/core/message"
)

// Webhook is an address that is told of events. Its JSON is its form in the store, and, without the secret, in the API.
type Webhook struct {
	Name   string   `json:"name"`
	URL    string   `json:"url"`
	Events []string `json:"events"`          // patterns of their names, as of a topic exchange; none: only rules tell it something
	VHost  string   `json:"vhost,omitempty"` // only what happens there; "": everything
	Secret string   `json:"secret,omitempty"`
	On     bool     `json:"on"`
}

// Bounds of webhooks.
const (
	maxHooks        = 20
	maxHookName     = 100 // bytes
	maxHookURL      = 2 << 10
	maxHookEvents   = 50
	minSecret       = 16
	maxSecret       = 256
	maxHookWaiting  = 1000     // messages that wait for one webhook
	maxHookBytes    = 16 << 20 // of these
	maxTellBytes    = 256 << 10
	maxTellLetters  = 50 // in one message
	maxTellKeys     = 8
	maxTellText     = 1 << 10
	maxHeard        = 1000 // events that nobody has looked at
	hooksAtOnce     = 8
	maxHookResponse = 64 << 10 // bytes that are read
)

func wrongHook(name, format string, args ...any) error {
	return refuse(BadRequest, "webhook '"+name+"': "+format, args...)
}

// check says what is wrong with the webhook.
func (h *Webhook) check() error {
	wrong := func(format string, args ...any) error {
		return wrongHook(strings.ReplaceAll(h.Name, "%", "%%"), format, args...)
	}
	switch {
	case h.Name == "" || len(h.Name) > maxHookName || !utf8.ValidString(h.Name):
		return refuse(BadRequest, "webhook '%.100s': its name must be UTF-8 of 1 to %d bytes", h.Name, maxHookName)
	case len(h.URL) > maxHookURL:
		return wrong("url has %d bytes; at most %d are allowed", len(h.URL), maxHookURL)
	case len(h.Events) > maxHookEvents:
		return wrong("%d events are too many; at most %d are allowed", len(h.Events), maxHookEvents)
	case len(h.Secret) < minSecret || len(h.Secret) > maxSecret:
		return wrong("secret must have %d to %d bytes: it signs what the webhook is told", minSecret, maxSecret)
	case len(h.VHost) > message.MaxName:
		return wrong("vhost has %d bytes; at most %d are allowed", len(h.VHost), message.MaxName)
	}
	for _, e := range h.Events {
		if e == "" || len(e) > message.MaxName {
			return wrong("an event is a name such as job.done, or a pattern such as job.*, of at most %d bytes", message.MaxName)
		}
	}
	u, err := url.Parse(h.URL)
	switch {
	case err != nil:
		return wrong("url cannot be read")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return wrong("url must begin with https:// or http:// and name a host")
	case u.User != nil:
		return wrong("url must have no user and password: the signature says who sends")
	case u.Fragment != "":
		return wrong("url must have no part behind #")
	}
	return nil
}

// wants says whether an event is one of those that the webhook is told of.
func (h *Webhook) wants(key string) bool {
	return h.On && slices.ContainsFunc(h.Events, func(pattern string) bool { return matchesTopic(strings.Split(pattern, "."), strings.Split(key, ".")) })
}

// matchesTopic says whether a pattern matches a key: * stands for one word, # for any number.
func matchesTopic(pattern, key []string) bool {
	for i, p := range pattern {
		switch {
		case p == "#":
			for n := range len(key) - i + 1 {
				if matchesTopic(pattern[i+1:], key[i+n:]) {
					return true
				}
			}
			return false
		case i >= len(key) || p != "*" && p != key[i]:
			return false
		}
	}
	return len(key) == len(pattern)
}

// in says whether the webhook is told of what happens in a virtual host; "" is what happens in none.
func (h *Webhook) in(vhost string) bool { return h.VHost == "" || h.VHost == vhost }

// translated are IPv6 networks whose addresses contain an IPv4 address, and where it begins: NAT64, 6to4, and IPv4-compatible addresses.
var translated = []struct {
	net netip.Prefix
	at  int
}{{netip.MustParsePrefix("64:ff9b::/96"), 12}, {netip.MustParsePrefix("2002::/16"), 2}, {netip.MustParsePrefix("::/96"), 12}}

var thisNetwork = netip.MustParsePrefix("0.0.0.0/8")

// isLocal says whether an address belongs to this machine or its link: behind it are services that trust whoever reaches them, such as the
// metadata of a cloud.
func isLocal(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() || thisNetwork.Contains(a) {
		return true
	}
	for _, t := range translated {
		if t.net.Contains(a) {
			b := a.As16()
			return isLocal(netip.AddrFrom4([4]byte(b[t.at : t.at+4])))
		}
	}
	return false
}

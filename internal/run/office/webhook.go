package office

import (
	"fmt"
	"net"
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

// knowsEvents refuses patterns that no event of the node matches, but for those that the webhook had before.
func (h *Webhook) knowsEvents(had []string) error {
	for _, e := range h.Events {
		pattern := strings.Split(e, ".")
		if !slices.Contains(had, e) && !slices.ContainsFunc(eventNames, func(name string) bool { return matchesTopic(pattern, strings.Split(name, ".")) }) {
			return wrongHook(strings.ReplaceAll(h.Name, "%", "%%"), "no event is called '%s'; there are %s", e, strings.Join(eventNames, ", "))
		}
	}
	return nil
}

// wants says whether an event is one of those that the webhook is told of.
func (h *Webhook) wants(key string) bool {
	return h.On && slices.ContainsFunc(h.Events, func(pattern string) bool { return matchesTopic(strings.Split(pattern, "."), strings.Split(key, ".")) })
}

// matchesTopic says whether a pattern matches a key: * stands for one word, # for any number. It takes time of one times the other, since an
// event may be told with locks held.
func matchesTopic(pattern, key []string) bool {
	matched := make([]bool, len(key)+1) // the words of the pattern so far match so many of the key
	matched[0] = true
	for _, p := range pattern {
		before := matched[0] // of the word that is looked at, without this word of the pattern
		matched[0] = before && p == "#"
		for i, word := range key {
			if p == "#" {
				matched[i+1] = matched[i+1] || matched[i]
				continue
			}
			before, matched[i+1] = matched[i+1], before && (p == "*" || p == word)
		}
	}
	return matched[len(key)]
}

// in says whether the webhook is told of what happens in a virtual host; "" is what happens in none.
func (h *Webhook) in(vhost string) bool { return h.VHost == "" || h.VHost == vhost }

// translated are IPv6 networks whose addresses contain an IPv4 address, and where it begins: NAT64, 6to4, IPv4-compatible addresses, and those of SIIT.
var translated = []struct {
	net netip.Prefix
	at  int
}{{netip.MustParsePrefix("64:ff9b::/96"), 12}, {netip.MustParsePrefix("2002::/16"), 2}, {netip.MustParsePrefix("::/96"), 12}, {netip.MustParsePrefix("::ffff:0:0:0/96"), 12}}

// localNAT64 has NAT64 prefixes of local use (RFC 8215). How long the prefix is is not known, so the IPv4 address may begin at any of these bytes:
// RFC 6052, 2.2, which leaves out byte 8.
var (
	localNAT64   = netip.MustParsePrefix("64:ff9b:1::/48")
	inLocalNAT64 = [][4]int{{6, 7, 9, 10}, {7, 9, 10, 11}, {9, 10, 11, 12}, {12, 13, 14, 15}}
)

var thisNetwork = netip.MustParsePrefix("0.0.0.0/8")

// metadata are services of clouds that trust whoever reaches them, and have addresses that are not link-local.
var metadata = []netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200")}

// isLocal says whether an address belongs to this machine or its link: behind it are services that trust whoever reaches them, such as the
// metadata of a cloud. own are the addresses of this machine's interfaces.
func isLocal(a netip.Addr, own []netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() || thisNetwork.Contains(a) || slices.Contains(metadata, a) || slices.Contains(own, a) {
		return true
	}
	b := a.As16()
	for _, t := range translated {
		if t.net.Contains(a) {
			return isLocal(netip.AddrFrom4([4]byte(b[t.at:t.at+4])), own)
		}
	}
	return localNAT64.Contains(a) && slices.ContainsFunc(inLocalNAT64, func(at [4]int) bool {
		in := netip.AddrFrom4([4]byte{b[at[0]], b[at[1]], b[at[2]], b[at[3]]})
		return !thisNetwork.Contains(in) && isLocal(in, own) // zeros are of a longer prefix
	})
}

// ownAddresses are those of this machine's interfaces now.
func ownAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("the addresses of this machine cannot be read: %w", err)
	}
	var own []netip.Addr
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				own = append(own, ip.Unmap())
			}
		}
	}
	return own, nil
}

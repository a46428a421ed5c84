package auth

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"bartleby.mq/internal/core/expression"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// TopicPermission restricts the keys that a user may use with a topic exchange: routing keys of publishes, and binding keys.
// {username}, {vhost} and {client_id} are replaced by the client's values (BR-3.5).
type TopicPermission struct {
	VHost    message.VHost
	User     string
	Exchange message.ExchangeName
	Write    string
	Read     string

	write, read topicPattern
}

// topicPattern is an expression, compiled unless it depends on the client.
type topicPattern struct {
	compiled *expression.Name // nil denies
	open     string           // the expression, if it contains {client_id}
}

const clientIDVariable = "{client_id}"

// newTopicPattern replaces {username} and {vhost}.
func newTopicPattern(text string, vhost message.VHost, user string) topicPattern {
	text = withNames(text, vhost, user)
	if strings.Contains(text, clientIDVariable) {
		return topicPattern{open: text}
	}
	return topicPattern{compiled: compile(text)}
}

func withNames(text string, vhost message.VHost, user string) string {
	return expand(text, map[string]string{"{username}": user, "{vhost}": string(vhost)})
}

// with replaces {client_id}. Without a client id the variable stays and matches nothing sensible.
func (p topicPattern) with(clientID string) *expression.Name {
	if clientID == "" {
		clientID = clientIDVariable
	}
	text := expand(p.open, map[string]string{clientIDVariable: clientID})
	if expression.CheckSize(text) != nil {
		return nil // the client may choose an id of any length
	}
	return compile(text)
}

// expand puts values in the places of variables. Whoever chooses a value does not choose what the expression means: each
// of its signs is a sign to match, written by its number, because a letter has a meaning too, after \p or in (?…). In a
// class they are signs of the class, and no range or negation. A variable after a backslash is none, and in \Q…\E
// the value interrupts the quotation.
func expand(text string, values map[string]string) string {
	var out strings.Builder
	quoted := false
	for i := 0; i < len(text); {
		rest := text[i:]
		switch {
		case quoted && strings.HasPrefix(rest, `\E`), !quoted && strings.HasPrefix(rest, `\Q`):
			quoted = !quoted
		case !quoted && rest[0] == '\\':
		default:
			name := rest[:strings.IndexByte(rest, '}')+1]
			value, ok := values[name]
			if !ok {
				out.WriteByte(rest[0])
				i++
				continue
			}
			if value = literal(value); quoted {
				value = `\E` + value + `\Q`
			}
			out.WriteString(value)
			i += len(name)
			continue
		}
		out.WriteString(rest[:min(2, len(rest))])
		i += min(2, len(rest))
	}
	return out.String()
}

// literal writes a text as an expression that matches it and nothing else, in whatever place of an expression it stands.
// What is no UTF-8 stays, and makes the expression one that denies.
func literal(text string) string {
	if !utf8.ValidString(text) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if r < 0x100 {
			fmt.Fprintf(&out, `\x%02x`, r)
		} else {
			fmt.Fprintf(&out, `\x{%x}`, r)
		}
	}
	return out.String()
}

// PutTopicPermission sets the keys that a user may use with an exchange. An unknown user is Invalid,
// and so is an expression that is too large with the names in it.
// REQUIRES: the virtual host exists.
func (u *Users) PutTopicPermission(p TopicPermission) (created bool, err error) {
	if err := u.checkUser(p.User); err != nil {
		return false, err
	}
	if err := message.CheckName("exchange", p.Exchange); err != nil {
		return false, topology.Refuse(topology.Invalid, "%s", err)
	}
	if err := checkSizes(withNames(p.Write, p.VHost, p.User), withNames(p.Read, p.VHost, p.User)); err != nil {
		return false, err
	}
	g := grantName{p.VHost, p.User}
	_, existed := u.topics[g][p.Exchange]
	u.topics[g] = maps.Clone(u.topics[g]) // Grants hold the old map
	u.addTopicPermission(p)
	u.revision++
	u.log.Put(topicPermissionKey(g, p.Exchange), topicPermissionRecord{recordVersion, p.VHost, p.User, p.Exchange, p.Write, p.Read})
	return !existed, nil
}

// addTopicPermission adds an entry to a map that no Grants hold.
func (u *Users) addTopicPermission(p TopicPermission) {
	p.write = newTopicPattern(p.Write, p.VHost, p.User)
	p.read = newTopicPattern(p.Read, p.VHost, p.User)
	g := grantName{p.VHost, p.User}
	if u.topics[g] == nil {
		u.topics[g] = map[message.ExchangeName]*TopicPermission{}
	}
	u.topics[g][p.Exchange] = &p
}

// DeleteTopicPermissions removes a user's entry for an exchange, or all in the virtual host if exchange is nil, and says
// whether there were any.
func (u *Users) DeleteTopicPermissions(vhost message.VHost, user string, exchange *message.ExchangeName) bool {
	g := grantName{vhost, user}
	entries := maps.Clone(u.topics[g])
	before := len(entries)
	for _, x := range slices.Sorted(maps.Keys(entries)) {
		if exchange == nil || *exchange == x {
			delete(entries, x)
			u.log.Delete(topicPermissionKey(g, x))
		}
	}
	if len(entries) == before {
		return false
	}
	if len(entries) == 0 {
		delete(u.topics, g)
	} else {
		u.topics[g] = entries
	}
	u.revision++
	return true
}

// TopicPermissions lists all topic permissions in no order: see SortTopicPermissions.
func (u *Users) TopicPermissions() []TopicPermission {
	var list []TopicPermission
	for _, entries := range u.topics {
		for _, p := range entries {
			list = append(list, *p)
		}
	}
	return list
}

// SortTopicPermissions sorts topic permissions by virtual host, user and exchange. It needs no lock.
func SortTopicPermissions(list []TopicPermission) []TopicPermission {
	slices.SortFunc(list, func(a, b TopicPermission) int {
		return cmp.Or(cmp.Compare(a.VHost, b.VHost), cmp.Compare(a.User, b.User), cmp.Compare(a.Exchange, b.Exchange))
	})
	return list
}

// expression is the client's compiled pattern; nil denies.
func (g *Grants) expression(p topicPattern) *expression.Name {
	if p.open == "" {
		return p.compiled
	}
	if g.open != p.open {
		g.open, g.compiled = p.open, p.with(g.clientID)
	}
	return g.compiled
}

// checkTopic checks one key. Without an entry for the exchange every key is allowed.
func (g *Grants) checkTopic(a topology.Access, r topology.Resource) error {
	entry, ok := g.topics[message.ExchangeName(r.Name)]
	if !ok {
		return nil
	}
	pattern := entry.read
	if a == topology.Write {
		pattern = entry.write
	}
	if re := g.expression(pattern); re != nil && re.MatchString(r.Key) {
		return nil
	}
	return refused(a, r, g.user)
}

package auth

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

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

// newTopicPattern replaces {username} and {vhost}. Names are escaped, so that they match only themselves.
func newTopicPattern(text string, vhost message.VHost, user string) topicPattern {
	text = withNames(text, vhost, user)
	if strings.Contains(text, clientIDVariable) {
		return topicPattern{open: text}
	}
	return topicPattern{compiled: compile(text)}
}

func withNames(text string, vhost message.VHost, user string) string {
	return strings.NewReplacer("{username}", regexp.QuoteMeta(user), "{vhost}", regexp.QuoteMeta(string(vhost))).Replace(text)
}

// with replaces {client_id}. Without a client id the variable stays and matches nothing sensible.
func (p topicPattern) with(clientID string) *expression.Name {
	if clientID == "" {
		return compile(strings.ReplaceAll(p.open, clientIDVariable, regexp.QuoteMeta(clientIDVariable)))
	}
	return compile(strings.ReplaceAll(p.open, clientIDVariable, regexp.QuoteMeta(clientID))) // nil if it is too large: the client may choose an id of any length
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

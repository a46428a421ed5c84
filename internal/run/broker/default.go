package broker

import (
	"cmp"
	"crypto/rand"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/declare"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// Default is what the first start of a node creates (BR-18.1).
type Default struct {
	VHost                  message.VHost
	User, Password         string
	Tags                   []string
	Configure, Write, Read string
}

// Empty says whether nothing is declared.
func (b *Broker) Empty() bool {
	b.topo.RLock()
	defer b.topo.RUnlock()
	return len(b.state.VHosts()) == 0 && len(b.users.List()) == 0
}

// Started says whether the node has had its first start.
func (b *Broker) Started() (bool, error) { return b.data.Started() }

// SetStarted notes that it has had it.
func (b *Broker) SetStarted() error { return b.data.SetStarted() }

// CreateDefault makes the first virtual host and the first user.
func (b *Broker) CreateDefault(d Default) error {
	err := b.change(func() error {
		for _, c := range []declare.Command{
			declare.PutVHost{Name: d.VHost, Change: declare.All(topology.Metadata{Description: "Default virtual host"})},
			declare.PutUser{Name: d.User, Password: hashPassword(b.rules.Load().Hashing, d.Password), Tags: d.Tags},
			declare.PutPermission{Permission: auth.Permission{VHost: d.VHost, User: d.User, Configure: d.Configure, Write: d.Write, Read: d.Read}},
		} {
			for again := true; again; { // all users may have been deleted before a start; nobody waits yet
				r, err := b.declared.Apply(c)
				if err != nil {
					return err
				}
				again = r.Again
			}
		}
		return nil
	})
	return cmp.Or(err, b.ensureEventExchange())
}

// salt is random bytes for a password's hash.
func salt(size int) []byte {
	s := make([]byte, size)
	_, _ = rand.Read(s) // never fails
	return s
}

package broker

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/admission"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/safety/held"
)

// Login is who a client is after it has authenticated, and how.
type Login struct {
	Identity  *Identity // as Authenticate found it; nil: User, by the node's accounts
	User      string
	Mechanism string
	ClientID  string // what {client_id} stands for in topic permissions
}

// Peer is a client's socket as the broker shows it.
type Peer struct {
	Name     string // "127.0.0.1:40112 -> 127.0.0.1:5672"
	Host     string
	Port     int
	PeerHost string
	PeerPort int
	Protocol string // "AMQP 0-9-1"
}

// Client is the session behind a connection.
type Client interface {
	// Terminate ends the connection: the client is told code and text if it can be told.
	Terminate(code uint16, text string)
	// Status is the connection as of now. Any goroutine may call it.
	Status() ConnectionStatus
	// ChannelStatuses likewise are its channels, by number.
	ChannelStatuses() []ChannelStatus
}

// Connection is a client's access to one virtual host. Its methods may be used
// by one goroutine at a time, but for those that say otherwise.
type Connection struct {
	Peer
	b     *Broker
	User  string
	VHost message.VHost
	Since time.Time

	client   Client
	clientID string
	owner    string // see Owner
	operator bool   // may do everything: see AsOperator
	id       *Identity
	apsara   *ApsaraMQ // nil in virtual hosts of another profile

	// Owned by the goroutine that uses the connection.
	router  topology.Router
	cache   routes
	passing passage
	grants  *auth.Grants // as of granted
	granted uint64       // revision of the accounts
	// elsewhere are the permissions of a client whom a backend knows, else nil.
	elsewhere *elsewhere

	channels int64  // guarded by Broker.conns
	usage    *usage // of its user, while it is open; guarded by Broker.conns

	mu        held.Mutex        // guards what follows
	exclusive []*topology.Queue // some may be gone: see own
	forgetAt  int               // how many of them there are when it is looked again
}

// Connect opens the virtual host for an authenticated user (BR-3.1) and
// registers the connection. The caller calls Disconnect in the end.
func (b *Broker) Connect(login Login, peer Peer, vhost message.VHost, client Client) (*Connection, error) {
	if login.Identity == nil {
		login.Identity = &Identity{Name: login.User}
	}
	c := b.For(login.Identity, vhost)
	c.Peer, c.client, c.clientID = peer, client, login.ClientID
	c.Rename(peer.Name)
	if login.Identity.Elsewhere() {
		if err := b.mayConnect(login.Identity, peer, vhost); err != nil {
			return nil, err
		}
	}
	var err error
	failed := b.look(func() { err = c.register() })
	if failed != nil && err == nil {
		c.Disconnect()
	}
	if err = cmp.Or(failed, err); err != nil {
		return nil, err
	}
	return c, nil
}

// register enters a connection into the list of those that are open. REQUIRES: topo is held.
func (c *Connection) register() error {
	b, vhost := c.b, c.VHost
	v, ok := b.state.VHost(vhost)
	if !ok {
		return topology.Refuse(topology.NotAllowed, "vhost %s not found", vhost)
	}
	c.apsara = b.apsaraOf(v) // For has asked before: it may have been made anew since, with another profile
	if c.elsewhere == nil {
		if err := c.resolve(); err != nil {
			return err
		}
	}
	b.conns.Lock()
	defer b.conns.Unlock()
	if b.closing {
		return topology.Refuse(topology.NotAllowed, "the broker is stopping")
	}
	limit, limited := v.Limit(topology.MaxConnections)
	user, ok := c.account()
	if !ok {
		return noAccess(vhost, c.User)
	}
	if limited && limit >= 0 && b.ofVHost[vhost] >= limit {
		return topology.Refuse(topology.NotAllowed, "access to vhost '%s' refused for user '%s': connection limit (%d) is reached", vhost, c.User, limit)
	}
	used := b.ofUser[c.User]
	if used == nil {
		used = new(usage)
	}
	if err := user.CheckConnections(used.connections); err != nil {
		return err
	}
	b.open[c] = struct{}{}
	b.ofVHost[vhost]++
	b.ofUser[c.User], c.usage = used, used
	used.connections++
	b.Totals.ConnectionsOpened.Add(1)
	return nil
}

// usage is what a user has open on the node; guarded by Broker.conns.
type usage struct{ connections, channels int64 }

// forget takes a connection out of the list of those that are open, if it is there. REQUIRES: conns is held.
func (c *Connection) forget() (was bool) {
	b, used := c.b, c.usage
	if used == nil {
		return false
	}
	c.usage = nil
	delete(b.open, c)
	if b.ofVHost[c.VHost]--; b.ofVHost[c.VHost] == 0 {
		delete(b.ofVHost, c.VHost)
	}
	used.channels -= c.channels
	if used.connections--; used.connections == 0 {
		delete(b.ofUser, c.User)
	}
	return true
}

// mayConnect asks a backend whether its client may enter a virtual host, if there is one.
func (b *Broker) mayConnect(id *Identity, peer Peer, vhost message.VHost) error {
	b.topo.RLock()
	_, ok := b.state.VHost(vhost)
	b.topo.RUnlock()
	if !ok {
		return nil // which is told later
	}
	host, _ := netip.ParseAddr(peer.PeerHost) // none where there is none
	return b.MayEnter(id, vhost, host)
}

// As is a connection for an administrative request of a user of the node's accounts:
// it is not registered and owns nothing.
func (b *Broker) As(user string, vhost message.VHost) *Connection {
	return b.For(&Identity{Name: user}, vhost)
}

// For is As for a client that has proven who it is.
func (b *Broker) For(id *Identity, vhost message.VHost) *Connection {
	c := &Connection{b: b, User: id.Name, VHost: vhost, Since: time.Now(), id: id, apsara: b.apsaraIn(vhost)}
	c.Rename("")
	if id.authz != nil {
		c.elsewhere = &elsewhere{
			by: id.authz, who: admission.Question{User: id.Name, Tags: tagText(id.Tags), VHost: vhost}, known: map[admission.Question]answer{},
		}
	}
	return c
}

// AsOperator is As for whoever runs the node and so needs no account.
func (b *Broker) AsOperator(name string, vhost message.VHost) *Connection {
	c := b.As(name, vhost)
	c.operator = true
	return c
}

// Rename gives a connection the name that it is shown by.
func (c *Connection) Rename(name string) {
	c.Name = name
	c.owner = name + "\x00" + strconv.FormatUint(c.b.connected.Add(1), 10)
}

// Owner is what an exclusive queue knows its connection by. The name is not enough: it is made of
// two addresses, and the next client may have the same while this connection still ends.
func (c *Connection) Owner() string { return c.owner }

// OwnerName is the name of the connection that an exclusive queue belongs to, "" for other queues.
func OwnerName(q *topology.Queue) string {
	name, _, _ := strings.Cut(q.Owner, "\x00")
	return name
}

// keptExclusive is how many exclusive queues a connection notes before it looks which are gone.
const keptExclusive = 64

// own notes an exclusive queue, which goes with the connection. Those that have gone before,
// in whatever way, are forgotten now and then: a client may declare one for each of its
// requests.
func (c *Connection) own(q *topology.Queue) {
	c.b.topo.RLock()
	defer c.b.topo.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.exclusive) >= max(c.forgetAt, keptExclusive) {
		c.exclusive = slices.DeleteFunc(c.exclusive, func(q *topology.Queue) bool {
			v, ok := c.b.state.VHost(c.VHost)
			if !ok {
				return true
			}
			now, ok := v.Queue(q.Name)
			return !ok || now != q
		})
		c.forgetAt = 2 * len(c.exclusive)
	}
	c.exclusive = append(c.exclusive, q)
}

// Disconnect forgets the connection; its exclusive queues are deleted (BR-7.5). It may be called
// more than once.
func (c *Connection) Disconnect() {
	c.b.conns.Lock()
	was := c.forget()
	c.b.conns.Unlock()
	if was {
		c.b.Totals.ConnectionsClosed.Add(1)
	}
	c.RemoveExclusive()
}

// RemoveExclusive deletes the connection's exclusive queues: when it returns they are gone for others. The
// caller declares no more of them.
func (c *Connection) RemoveExclusive() {
	c.mu.Lock()
	queues := c.exclusive
	c.exclusive = nil
	c.mu.Unlock()
	for _, q := range queues {
		_, _ = c.b.remove(q, nil) // gone already is as good
	}
}

// Terminate ends the client's connection. Any goroutine may call it.
func (c *Connection) Terminate(code uint16, text string) {
	if c.client != nil {
		c.client.Terminate(code, text)
	}
}

// Client is the session behind the connection.
func (c *Connection) Client() Client { return c.client }

// Connections lists those open now.
func (b *Broker) Connections() []*Connection {
	b.conns.Lock()
	defer b.conns.Unlock()
	list := make([]*Connection, 0, len(b.open))
	for c := range b.open {
		list = append(list, c)
	}
	return list
}

// CloseConnections ends all connections, telling each client code and text.
func (b *Broker) CloseConnections(code uint16, text string) {
	terminate(b.Connections(), code, text)
}

// matching are the connections that match now. Who closes them after a change asks within it: there may be others
// by then, of a successor with the same name.
func (b *Broker) matching(match func(*Connection) bool) []*Connection {
	return slices.DeleteFunc(b.Connections(), func(c *Connection) bool { return !match(c) })
}

func terminate(list []*Connection, code uint16, text string) {
	for _, c := range list {
		c.Terminate(code, text)
	}
}

// Drain refuses new connections from now on and ends those there are (BR-4.10).
func (b *Broker) Drain() {
	b.conns.Lock()
	b.closing = true
	b.conns.Unlock()
	b.endLife() // nobody waits for a backend or a late answer any more
	b.CloseConnections(320, "broker forced connection closure with reason 'shutdown'")
}

// account is the user's. One whom a backend knows may have none, and no limits then. There is none where the one that
// was logged in with is gone: who is called so now is somebody else. REQUIRES: topo is held.
func (c *Connection) account() (u *auth.User, ok bool) {
	if !c.id.stands(c.b.users) {
		return nil, false
	}
	if u, ok = c.b.users.User(c.User); !ok && c.elsewhere != nil {
		return new(auth.User), true
	}
	return u, ok
}

// resolve finds the user's permissions if the accounts have changed. REQUIRES: topo is held.
func (c *Connection) resolve() error {
	if revision := c.b.users.Revision(); c.grants == nil || c.granted != revision {
		if _, ok := c.account(); !ok {
			return noAccess(c.VHost, c.User)
		}
		grants, err := c.b.users.Grants(c.User, c.VHost, c.clientID)
		if err != nil {
			return err
		}
		c.grants, c.granted = grants, revision
	}
	return nil
}

// Impersonates says whether the user may set any user-id (BR-8.13).
func (c *Connection) Impersonates() bool {
	c.b.topo.RLock()
	defer c.b.topo.RUnlock()
	u, ok := c.account()
	if c.elsewhere != nil {
		return ok && slices.Contains(c.id.Tags, auth.Impersonator)
	}
	return ok && u.HasTag(auth.Impersonator)
}

// OpenChannel counts a channel and refuses it if the user or the node has too many
// (BR-3.7).
func (c *Connection) OpenChannel() error {
	b := c.b
	b.topo.RLock()
	user, ok := c.account()
	b.topo.RUnlock()
	if !ok {
		return topology.Refuse(topology.NotAllowed, "%s", auth.UserDeleted(c.User))
	}
	b.conns.Lock()
	defer b.conns.Unlock()
	used := c.usage
	if used == nil {
		used = new(usage) // a connection that is not open counts for nobody
	}
	if err := user.CheckChannels(used.channels); err != nil {
		return err
	}
	if most := b.rules.Load().MaxChannels; most > 0 && b.channels >= most {
		return topology.Refuse(topology.NotAllowed, "number of channels opened on node '%s' has reached the maximum allowed limit of (%d)", b.NodeName, most)
	}
	c.channels++
	used.channels++
	b.channels++
	b.Totals.ChannelsOpened.Add(1)
	return nil
}

// CloseChannel is the end of a channel that OpenChannel counted.
func (c *Connection) CloseChannel() {
	c.b.conns.Lock()
	c.channels--
	if c.usage != nil {
		c.usage.channels--
	}
	c.b.channels--
	c.b.conns.Unlock()
	c.b.Totals.ChannelsClosed.Add(1)
}

// Broker is the broker behind the connection.
func (c *Connection) Broker() *Broker { return c.b }

// Run carries out operations on queues, in order: see partition.Node.Run about what
// has not happened when it returns.
func (c *Connection) Run(ops []partition.Op) partition.Receipt {
	c.countPassed()
	if l := &c.b.ledger; l.removed.Load() > l.stored.Load() && slices.ContainsFunc(ops, func(op partition.Op) bool { return op.Owner != nil }) {
		_ = c.b.awaitRemovals() // groups answer without asking; a failure ends the node
	}
	return c.b.node.Run(ops)
}

// Enter carries out publishes and returns when they may be answered for: Op.Refused says of each whether a queue has
// refused it. An error means that nobody knows what became of some.
func (c *Connection) Enter(ops []partition.Op) error {
	c.countPassed()
	return cmp.Or(c.b.node.Enter(ops), c.b.awaitRemovals())
}

// RunWhole carries out a transaction.
func (c *Connection) RunWhole(ops []partition.Op) error {
	c.countPassed()
	return c.b.node.RunWhole(ops)
}

// Settle waits until all that was proposed to replicated queues has happened.
func (c *Connection) Settle() { c.b.node.SettleAll() }

// Await returns when what the receipt is for may be answered for (partition.Node.Await), and what a message did not reach since it was
// deleted is stored as gone. An error means that the disk failed and the node is stopping.
func (c *Connection) Await(r partition.Receipt) error {
	if err := c.b.node.Await(r); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return c.b.awaitRemovals()
}

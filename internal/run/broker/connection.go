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

// Login says who a client is after authentication, and how it authenticated.
type Login struct {
	Identity  *Identity // from Authenticate; nil: User, by the node's accounts
	User      string
	Mechanism string
	Protocol  LoginProtocol
	ClientID  string // replaces {client_id} in topic permissions
}

// Peer is a client's socket as shown to operators.
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
	// Terminate ends the connection, and sends code and text to the client if possible.
	Terminate(code uint16, text string)
	// Status is the connection's present status. Any goroutine may call it.
	Status() ConnectionStatus
	// ChannelStatuses are those of its channels, by number. Any goroutine may call it.
	ChannelStatuses() []ChannelStatus
}

// Connection is a client's access to one virtual host. One goroutine at a time may use its methods, except where a
// method says otherwise.
type Connection struct {
	Peer
	b     *Broker
	User  string
	VHost message.VHost
	Since time.Time

	client   Client
	traffic  *Traffic // of its protocol
	clientID string
	owner    string // see Owner
	operator bool   // may do everything: see AsOperator
	id       *Identity
	apsara   *ApsaraMQ // nil in virtual hosts of another profile

	// Owned by the goroutine that uses the connection.
	router  topology.Router
	cache   routes
	passing passage
	pairs   connectionPairs // others read it: see pairs
	grants  *auth.Grants    // at the revision granted
	granted uint64          // revision of the accounts
	readAt  int64           // see ReadNow; 0: nobody says
	// elsewhere has the permissions of a client that a backend knows, else nil.
	elsewhere *elsewhere

	channels int64  // guarded by Broker.conns
	usage    *usage // that of its user, while it is open; guarded by Broker.conns

	mu        held.Mutex        // guards what follows
	exclusive []*topology.Queue // some may be deleted: see own
	forgetAt  int               // at which length own looks again which are deleted
}

// ReadNow says that what the client sends next was read now: its messages have come now, and the clock is not looked at for each of them.
func (c *Connection) ReadNow() { c.readAt = c.b.now() }

// nextSerial numbers a message of the client.
func (c *Connection) nextSerial() message.Serial {
	if c.readAt != 0 {
		return c.b.nextSerial(c.readAt)
	}
	return c.b.nextSerial(c.b.now())
}

// Connect opens the virtual host for an authenticated user (BR-3.1) and registers the connection. The caller calls
// Disconnect at the end.
func (b *Broker) Connect(login Login, peer Peer, vhost message.VHost, client Client) (*Connection, error) {
	if login.Identity == nil {
		login.Identity = &Identity{Name: login.User}
	}
	c := b.For(login.Identity, vhost)
	c.Peer, c.client, c.clientID, c.traffic = peer, client, login.ClientID, &b.Totals.Traffic[login.Protocol]
	c.Rename(peer.Name)
	if login.Identity.Elsewhere() {
		if err := b.mayConnect(login.Identity, peer, vhost); err != nil {
			return nil, err
		}
	}
	c.beginPairs()
	var err error
	failed := b.look(func() { err = c.register() })
	if failed != nil && err == nil {
		c.Disconnect()
	}
	if err = cmp.Or(failed, err); err != nil {
		return nil, err
	}
	c.notifyOpened()
	return c, nil
}

// register adds a connection to the open ones. REQUIRES: topo is held.
func (c *Connection) register() error {
	b, vhost := c.b, c.VHost
	v, ok := b.state.VHost(vhost)
	if !ok {
		return topology.Refuse(topology.NotAllowed, "vhost %s not found", vhost)
	}
	c.apsara = b.apsaraOf(v) // For has read it before, but the virtual host may have been made anew with another profile
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

// usage counts what a user has open on the node; guarded by Broker.conns.
type usage struct{ connections, channels int64 }

// forget removes a connection from the open ones and says whether it was one. REQUIRES: conns is held.
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

// mayConnect asks the client's backend, if it has one, whether the client may enter a virtual host.
func (b *Broker) mayConnect(id *Identity, peer Peer, vhost message.VHost) error {
	b.topo.RLock()
	_, ok := b.state.VHost(vhost)
	b.topo.RUnlock()
	if !ok {
		return nil // register refuses it
	}
	host, _ := netip.ParseAddr(peer.PeerHost) // the zero value if there is none
	return b.MayEnter(id, vhost, host)
}

// Traffic are the counters of the connection's protocol.
func (c *Connection) Traffic() *Traffic { return c.traffic }

// As returns a connection for an administrative request of one of the node's users. It is not registered and owns
// nothing.
func (b *Broker) As(user string, vhost message.VHost) *Connection {
	return b.For(&Identity{Name: user}, vhost)
}

// For is As for an authenticated client.
func (b *Broker) For(id *Identity, vhost message.VHost) *Connection {
	c := &Connection{b: b, User: id.Name, VHost: vhost, Since: time.Now(), id: id, apsara: b.apsaraIn(vhost), traffic: &b.Totals.Traffic[LoginAMQP091]}
	c.Rename("")
	c.cache.onForget = c.bringAll
	if id.authz != nil {
		c.elsewhere = &elsewhere{
			by: id.authz, who: admission.Question{User: id.Name, Tags: tagText(id.Tags), VHost: vhost}, known: map[admission.Question]answer{},
		}
	}
	return c
}

// AsOperator is As for the operator of the node, who needs no account.
func (b *Broker) AsOperator(name string, vhost message.VHost) *Connection {
	c := b.As(name, vhost)
	c.operator = true
	return c
}

// Rename sets the name that is shown for the connection.
func (c *Connection) Rename(name string) {
	c.Name = name
	c.owner = name + "\x00" + strconv.FormatUint(c.b.connected.Add(1), 10)
}

// Owner identifies the connection as the owner of exclusive queues. Its name is not enough: it consists of two
// addresses, and the next client may have the same ones while this connection is still ending.
func (c *Connection) Owner() string { return c.owner }

// OwnerName is the name of the connection that owns an exclusive queue, "" for other queues.
func OwnerName(q *topology.Queue) string {
	name, _, _ := strings.Cut(q.Owner, "\x00")
	return name
}

// keptExclusive is how many exclusive queues a connection notes before it checks which are deleted.
const keptExclusive = 64

// own notes an exclusive queue, which is deleted with the connection. Queues that were deleted before are forgotten
// now and then, because a client may declare one for each of its requests.
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

// Disconnect removes the connection and deletes its exclusive queues (BR-7.5). It may be called more than once.
func (c *Connection) Disconnect() {
	c.endPairs(func(uint16) bool { return true })
	c.b.conns.Lock()
	was := c.forget()
	c.b.conns.Unlock()
	if was {
		c.b.Totals.ConnectionsClosed.Add(1)
		c.notifyClosed()
	}
	c.RemoveExclusive()
}

// RemoveExclusive deletes the connection's exclusive queues. When it returns, they are gone for others. The caller
// declares no more of them.
func (c *Connection) RemoveExclusive() {
	c.mu.Lock()
	queues := c.exclusive
	c.exclusive = nil
	c.mu.Unlock()
	for _, q := range queues {
		_, _ = c.b.remove(q, internalUser, nil) // already deleted is fine
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

// Connections lists the open connections.
func (b *Broker) Connections() []*Connection {
	b.conns.Lock()
	defer b.conns.Unlock()
	list := make([]*Connection, 0, len(b.open))
	for c := range b.open {
		list = append(list, c)
	}
	return list
}

// CloseConnections ends all connections and sends code and text to each client.
func (b *Broker) CloseConnections(code uint16, text string) {
	terminate(b.Connections(), code, text)
}

// matching returns the open connections that match. A change that closes connections calls it within the change:
// later there may be connections to a successor of the same name.
func (b *Broker) matching(match func(*Connection) bool) []*Connection {
	return slices.DeleteFunc(b.Connections(), func(c *Connection) bool { return !match(c) })
}

func terminate(list []*Connection, code uint16, text string) {
	for _, c := range list {
		c.Terminate(code, text)
	}
}

// Drain refuses new connections from now on and ends the open ones (BR-4.10).
func (b *Broker) Drain() {
	b.conns.Lock()
	b.closing = true
	b.conns.Unlock()
	b.endLife() // nobody waits any longer for a backend or a delayed answer
	b.CloseConnections(320, "broker forced connection closure with reason 'shutdown'")
}

// account returns the user's account. A client that a backend knows may have none, and has no limits then. ok is
// false if the account that logged in is gone: an account of the same name is another user. REQUIRES: topo is held.
func (c *Connection) account() (u *auth.User, ok bool) {
	if !c.id.stands(c.b.users) {
		return nil, false
	}
	if u, ok = c.b.users.User(c.User); !ok && c.elsewhere != nil {
		return new(auth.User), true
	}
	return u, ok
}

// resolve reads the user's permissions again if the accounts have changed. REQUIRES: topo is held.
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

// OpenChannel counts a channel, or refuses it if the user or the node has too many (BR-3.7). A session of AMQP 1.0 is refused only if
// the user is gone.
func (c *Connection) OpenChannel() error {
	b := c.b
	b.topo.RLock()
	user, ok := c.account()
	b.topo.RUnlock()
	if !ok {
		return topology.Refuse(topology.NotAllowed, "%s", auth.UserDeleted(c.User))
	}
	if c.hasSessions() {
		return nil
	}
	b.conns.Lock()
	defer b.conns.Unlock()
	used := c.usage
	if used == nil {
		used = new(usage) // a connection that is not open counts for no user
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

// hasSessions says that what OpenChannel opens is a session of AMQP 1.0. It is no channel: neither to who looks, nor for the limits of a
// user and of the node, as in RabbitMQ. A connection has its own limit of sessions.
func (c *Connection) hasSessions() bool { return c.traffic == &c.b.Totals.Traffic[LoginAMQP10] }

// CloseChannel counts the end of a channel that OpenChannel has counted.
func (c *Connection) CloseChannel() {
	if c.hasSessions() {
		return
	}
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

// Run carries out operations on queues, in order. See partition.Node.Run for those that are only proposed when it
// returns.
func (c *Connection) Run(ops []partition.Op) partition.Receipt {
	c.countPassed()
	if l := &c.b.ledger; l.removed.Load() > l.stored.Load() && slices.ContainsFunc(ops, func(op partition.Op) bool { return op.Owner != nil }) {
		_ = c.b.awaitRemovals() // groups answer without asking for that; a failure ends the node
	}
	return c.b.node.Run(ops)
}

// Enter carries out publishes and returns when they may be answered: Op.Refused says of each whether a queue has
// refused it. After an error the fate of some is unknown.
func (c *Connection) Enter(ops []partition.Op) error {
	c.countPassed()
	return cmp.Or(c.b.node.Enter(ops), c.b.awaitRemovals())
}

// RunWhole carries out a transaction.
func (c *Connection) RunWhole(ops []partition.Op) error {
	c.countPassed()
	return c.b.node.RunWhole(ops)
}

// Settle waits until everything proposed to replicated queues was applied.
func (c *Connection) Settle() { c.b.node.SettleAll() }

// Await returns when the operations of the receipt may be answered (partition.Node.Await), and the store has the
// deletion of every queue that a message did not reach for that reason. An error means that the disk failed and the
// node is stopping.
func (c *Connection) Await(r partition.Receipt) error {
	if err := c.b.node.Await(r); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return c.b.awaitRemovals()
}

package broker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/safety/held"
)

// What was published through an exchange into a queue is counted for Prometheus, by channel and in all. A message only
// adds one to a number that its route has, whatever the number of queues (tally). From there the counts come to the pairs
// of the connection, when the route is forgotten, and from there to those of the virtual host, when the channel or the
// connection ends. A reader adds up all three.

const (
	// maxPairs is how many pairs are counted in a virtual host, with those of its channels. Further ones are not
	// counted; the counters of exchanges, channels and queues are.
	maxPairs = 1 << 16
	// maxTallied is the same for the targets of routes: all have to be looked at for an answer.
	maxTallied = 1 << 18
	// maxTallies is how many channels of a connection have a number of their own on a route. More share the last.
	maxTallies = 8
	// maxSeries is how many exchanges and queues have counters of their own in the channels of a virtual host.
	maxSeries = 1 << 16
	// fewPairs is how many pairs a connection has before it looks which of their queues are deleted.
	fewPairs = 256
)

// through is an exchange that clients publish to, and a queue that gets it.
type through struct {
	exchange message.ExchangeName
	queue    *partition.Queue
}

// channelPair is the same of one channel.
type channelPair struct {
	through
	channel uint16
}

// pairs counts by virtual host.
type pairs struct {
	mu      held.Mutex // guards what follows, and of all connections the pairs and the lists of tallies; no lock is taken under it
	ofVHost map[message.VHost]*vhostPairs
}

type vhostPairs struct {
	ended   map[through]uint64 // by channels that have ended
	n       int                // pairs, in ended and of connections
	sweepAt int                // at which n it is looked which queues are deleted
	tallied int                // targets of tallies
	series  atomic.Int64       // see Connection.TakeSeries
}

// of returns those of a virtual host. REQUIRES: mu.
func (p *pairs) of(v message.VHost) *vhostPairs {
	if p.ofVHost == nil {
		p.ofVHost = map[message.VHost]*vhostPairs{}
	}
	if p.ofVHost[v] == nil {
		p.ofVHost[v] = &vhostPairs{ended: map[through]uint64{}, sweepAt: fewPairs}
	}
	return p.ofVHost[v]
}

// routeCounts are the tallies of a route, by channel. Its connection's goroutine owns of.
type routeCounts struct {
	exchange message.ExchangeName
	targets  []*partition.Queue
	of       []*tally
}

// tally counts what a channel has published on a route. Only its connection's goroutine adds to it.
type tally struct {
	route   *routeCounts
	channel uint16
	n       atomic.Uint64
}

// connectionPairs are the counts of one connection.
type connectionPairs struct {
	vhost   *vhostPairs // nil: nothing was counted yet
	tallies []*tally
	tallied int // their targets
	of      map[channelPair]*atomic.Uint64
	sweepAt int
}

// tally counts a message of a channel on a route.
func (c *Connection) tally(r *routeCounts, channel uint16) {
	if c.client == nil {
		c.countEnded(r.exchange, r.targets)
		return
	}
	for _, t := range r.of {
		if t.channel == channel {
			t.n.Add(1)
			return
		}
	}
	c.tallyOf(r, channel).n.Add(1)
}

// tallyOf makes a tally. If there are too many, it is one of another channel's, or nobody reads it.
func (c *Connection) tallyOf(r *routeCounts, channel uint16) *tally {
	t := &tally{route: r, channel: channel}
	p := &c.b.pairs
	if len(r.of) == maxTallies {
		t = r.of[maxTallies-1]
		p.mu.Lock()
		c.bring(t)
		t.channel = channel
		p.mu.Unlock()
		return t
	}
	r.of = append(r.of, t)
	p.mu.Lock()
	defer p.mu.Unlock()
	v := c.pairsOfVHost()
	if v.tallied+len(r.targets) > maxTallied {
		return t
	}
	v.tallied += len(r.targets)
	c.pairs.tallied += len(r.targets)
	c.pairs.tallies = append(c.pairs.tallies, t)
	return t
}

// beginPairs makes room for counts, so that later only the connection's goroutine looks where they are.
func (c *Connection) beginPairs() {
	c.b.pairs.mu.Lock()
	c.pairsOfVHost()
	c.b.pairs.mu.Unlock()
}

// pairsOfVHost are those of the connection's virtual host. REQUIRES: pairs.mu.
func (c *Connection) pairsOfVHost() *vhostPairs {
	if c.pairs.vhost == nil {
		c.pairs.vhost, c.pairs.sweepAt = c.b.pairs.of(c.VHost), fewPairs
		c.pairs.of = map[channelPair]*atomic.Uint64{}
	}
	return c.pairs.vhost
}

// bring moves a tally's count to the pairs. REQUIRES: pairs.mu.
func (c *Connection) bring(t *tally) {
	n := t.n.Swap(0)
	if n == 0 {
		return
	}
	for _, q := range t.route.targets {
		if to := c.pair(channelPair{through{t.route.exchange, q}, t.channel}); to != nil {
			to.Add(n)
		}
	}
}

// pair is the count of a pair, or nil if there are too many. REQUIRES: pairs.mu.
func (c *Connection) pair(k channelPair) *atomic.Uint64 {
	if n := c.pairs.of[k]; n != nil {
		return n
	}
	v := c.pairsOfVHost()
	if v.n >= maxPairs {
		return nil
	}
	v.n++
	n := new(atomic.Uint64)
	c.pairs.of[k] = n
	return n
}

// bringAll moves the counts of all routes to the pairs: the routes are forgotten.
func (c *Connection) bringAll() {
	if len(c.pairs.tallies) == 0 { // only this goroutine adds to it
		return
	}
	c.b.pairs.mu.Lock()
	for _, t := range c.pairs.tallies {
		c.bring(t)
	}
	c.pairs.vhost.tallied -= c.pairs.tallied
	c.pairs.tallies, c.pairs.tallied = nil, 0
	c.b.pairs.mu.Unlock()
	c.sweepPairs()
}

// countLoose counts a message whose route is not kept.
func (c *Connection) countLoose(exchange message.ExchangeName, channel uint16, targets []*partition.Queue) {
	if c.client == nil { // nobody says when it ends
		c.countEnded(exchange, targets)
		return
	}
	for _, q := range targets {
		k := channelPair{through{exchange, q}, channel}
		n := c.pairs.of[k] // only this goroutine changes the map
		if n == nil {
			c.b.pairs.mu.Lock()
			n = c.pair(k)
			c.b.pairs.mu.Unlock()
		}
		if n != nil {
			n.Add(1)
		}
	}
	c.sweepPairs()
}

// countEnded counts a message as those of channels that have ended.
func (c *Connection) countEnded(exchange message.ExchangeName, targets []*partition.Queue) {
	c.b.pairs.mu.Lock()
	v := c.pairsOfVHost()
	for _, q := range targets {
		t := through{exchange, q}
		if _, there := v.ended[t]; !there {
			if v.n >= maxPairs {
				continue
			}
			v.n++
		}
		v.ended[t]++
	}
	sweep := v.n >= v.sweepAt
	c.b.pairs.mu.Unlock()
	if sweep {
		c.b.sweepEnded(v)
	}
}

// sweepPairs removes the pairs of deleted queues once there are many.
func (c *Connection) sweepPairs() {
	if len(c.pairs.of) < c.pairs.sweepAt || c.pairs.vhost == nil {
		return
	}
	var gone []channelPair
	for k := range c.pairs.of {
		if c.b.node.HasDeleted(k.queue) {
			gone = append(gone, k)
		}
	}
	c.b.pairs.mu.Lock()
	for _, k := range gone {
		delete(c.pairs.of, k)
	}
	c.pairs.vhost.n -= len(gone)
	c.b.pairs.mu.Unlock()
	c.pairs.sweepAt = max(fewPairs, 2*len(c.pairs.of))
}

// EndPairs says that a channel has ended: its counts are of nobody from now on.
func (c *Connection) EndPairs(channel uint16) {
	c.endPairs(func(n uint16) bool { return n == channel })
}

func (c *Connection) endPairs(which func(channel uint16) bool) {
	v := c.pairs.vhost
	if v == nil {
		return
	}
	c.b.pairs.mu.Lock()
	c.pairs.tallies = slices.DeleteFunc(c.pairs.tallies, func(t *tally) bool {
		if !which(t.channel) {
			return false
		}
		c.bring(t)
		v.tallied -= len(t.route.targets)
		c.pairs.tallied -= len(t.route.targets)
		t.route.of = slices.DeleteFunc(t.route.of, func(other *tally) bool { return other == t })
		return true
	})
	for k, n := range c.pairs.of {
		if !which(k.channel) {
			continue
		}
		if _, there := v.ended[k.through]; there {
			v.n--
		}
		v.ended[k.through] += n.Load()
		delete(c.pairs.of, k)
	}
	sweep := v.n >= v.sweepAt
	c.b.pairs.mu.Unlock()
	if sweep {
		c.b.sweepEnded(v)
	}
}

// sweepEnded removes what ended channels have published to queues that are deleted.
func (b *Broker) sweepEnded(v *vhostPairs) {
	b.pairs.mu.Lock()
	all := slices.Collect(maps.Keys(v.ended))
	b.pairs.mu.Unlock()
	gone := slices.DeleteFunc(all, func(t through) bool { return !b.node.HasDeleted(t.queue) })
	b.pairs.mu.Lock()
	for _, t := range gone {
		if _, there := v.ended[t]; there {
			delete(v.ended, t)
			v.n--
		}
	}
	v.sweepAt = max(fewPairs, 2*v.n)
	b.pairs.mu.Unlock()
}

// Passage is what was published to an exchange and came into a queue, directly or through other exchanges.
type Passage struct {
	VHost    message.VHost
	Exchange message.ExchangeName
	Queue    message.QueueName
	Channel  string // its name; "": by all, also by those that have ended
	Messages uint64
}

// Passages counts what came into queues through exchanges in the virtual hosts that see admits: by open channels of AMQP
// 0-9-1, and by all. Queues and exchanges that are deleted are left out.
func (b *Broker) Passages(see func(message.VHost) bool) (byChannel, all []Passage) {
	type part struct {
		c       *Connection
		channel uint16
		through
	}
	type tallied struct {
		c       *Connection
		route   *routeCounts
		channel uint16
		n       uint64
	}
	sum, own := map[through]uint64{}, map[part]uint64{}
	var routes []tallied
	connections := b.Connections()
	var swept []*vhostPairs
	b.pairs.mu.Lock()
	for vhost, v := range b.pairs.ofVHost {
		if !see(vhost) {
			continue
		}
		swept = append(swept, v)
		for k, n := range v.ended {
			sum[k] += n
		}
	}
	for _, c := range connections {
		if !see(c.VHost) {
			continue
		}
		for k, n := range c.pairs.of {
			own[part{c, k.channel, k.through}] += n.Load()
		}
		for _, t := range c.pairs.tallies {
			routes = append(routes, tallied{c, t.route, t.channel, t.n.Load()})
		}
	}
	b.pairs.mu.Unlock()
	for _, t := range routes {
		for _, q := range t.route.targets {
			if t.n > 0 {
				own[part{t.c, t.channel, through{t.route.exchange, q}}] += t.n
			}
		}
	}
	for k, n := range own {
		sum[k.through] += n
	}
	for _, v := range swept {
		b.sweepEnded(v)
	}
	b.Read(func(state *topology.State, _ *auth.Users) {
		there := func(t through) bool {
			v, ok := state.VHost(message.VHost(t.queue.VHost))
			if !ok {
				return false
			}
			q, ok := v.Queue(message.QueueName(t.queue.Name))
			if !ok || q.Runtime != any(t.queue) {
				return false
			}
			_, ok = v.Exchange(t.exchange)
			return ok || t.exchange == ""
		}
		maps.DeleteFunc(sum, func(t through, _ uint64) bool { return !there(t) })
		maps.DeleteFunc(own, func(p part, _ uint64) bool { return !there(p.through) })
	})
	show := func(t through, channel string, n uint64) Passage {
		return Passage{message.VHost(t.queue.VHost), t.exchange, message.QueueName(t.queue.Name), channel, n}
	}
	for t, n := range sum {
		all = append(all, show(t, "", n))
	}
	for k, n := range own {
		if _, of10 := k.c.client.(SessionClient); !of10 {
			byChannel = append(byChannel, show(k.through, ChannelName(k.c.Name, k.channel), n))
		}
	}
	slices.SortFunc(byChannel, func(a, b Passage) int { return cmp.Compare(a.Channel, b.Channel) })
	return byChannel, all
}

// ChannelName is the name of a connection's channel.
func ChannelName(connection string, number uint16) string {
	return fmt.Sprintf("%s (%d)", connection, number)
}

// TakeSeries says whether a channel of the connection may have counters of one more exchange or queue. Each that it may
// have is given back by GiveSeries.
func (c *Connection) TakeSeries() bool {
	c.b.pairs.mu.Lock()
	defer c.b.pairs.mu.Unlock()
	if v := c.pairsOfVHost(); v.series.Load() < maxSeries {
		v.series.Add(1)
		return true
	}
	return false
}

// GiveSeries gives back what TakeSeries has granted, so often.
func (c *Connection) GiveSeries(n int) {
	if n > 0 {
		c.pairs.vhost.series.Add(int64(-n))
	}
}

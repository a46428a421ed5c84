package openapi

import (
	"math"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// createVirtualHost makes a virtual host; an existing one stays as it is. Its creator gets
// all permissions in it.
func createVirtualHost(c *call) (any, error) {
	f := c.fields()
	name := message.VHost(f.newName("VirtualHost"))
	if f.err != nil {
		return nil, f.err
	}
	if !c.administers() {
		return nil, forbidden
	}
	_, err := c.s.b.By(c.who.Name).As(c.who).Do(declare.PutVHost{Name: name, Change: declare.All(newVHost), OnlyNew: true})
	return nil, err
}

// newVHost is the metadata of virtual hosts made here: users of this API want its rules.
var newVHost = topology.Metadata{Profile: deadletter.ApsaraMQ}

// deleteVirtualHost deletes an empty virtual host (DL-22.17).
func deleteVirtualHost(c *call) (any, error) {
	f := c.fields()
	name := f.vhost()
	if f.err != nil {
		return nil, f.err
	}
	if !c.administers() {
		return nil, forbidden
	}
	if err := c.findVHost(name); err != nil {
		return nil, err
	}
	_, err := c.s.b.By(c.who.Name).Do(declare.DeleteVHost{Name: name, OnlyEmpty: true})
	if isKind(err, topology.PreconditionFailed) {
		return nil, notEmpty
	}
	return nil, err
}

// virtualHostList is a page of virtual hosts.
type virtualHostList struct {
	VirtualHosts []virtualHost
	NextToken    string
	MaxResults   int
}

type virtualHost struct{ Name string }

func listVirtualHosts(c *call) (any, error) {
	f := c.fields()
	p := f.page("MaxResults", maxPage)
	if f.err != nil {
		return nil, f.err
	}
	all := []virtualHost{}
	c.s.b.Read(func(s *topology.State, u *auth.Users) {
		for _, v := range s.VHosts() {
			if c.visible.Sees(u, v.Name) {
				all = append(all, virtualHost{string(v.Name)})
			}
		}
	})
	some, next := cut(p, all, func(v virtualHost) string { return v.Name })
	return virtualHostList{some, next, p.size}, nil
}

// metadataAmount has the numbers of declared objects and their limits.
type metadataAmount struct {
	MaxVirtualHosts, CurrentVirtualHosts int
	MaxExchanges, CurrentExchanges       int
	MaxQueues, CurrentQueues             int
}

// getMetadataAmount counts the objects that the user may see. There is no limit; the answer
// has a number that is never reached.
func getMetadataAmount(c *call) (any, error) {
	m := metadataAmount{MaxVirtualHosts: math.MaxInt32, MaxExchanges: math.MaxInt32, MaxQueues: math.MaxInt32}
	c.s.b.Read(func(s *topology.State, u *auth.Users) {
		for _, v := range s.VHosts() {
			if c.visible.Sees(u, v.Name) {
				m.CurrentVirtualHosts++
				m.CurrentExchanges += len(named(v.Exchanges()))
				m.CurrentQueues += v.QueueCount()
			}
		}
	})
	return m, nil
}

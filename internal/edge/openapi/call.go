package openapi

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// call is one request on its way.
type call struct {
	s      *server
	r      *http.Request
	access Access
	id     string // told the client, and logged
	action string
	p      parameters

	// Known once its signature was found right.
	who     *broker.Identity
	visible broker.Visibility
}

// serve answers a request of this API.
func (s *server) serve(w http.ResponseWriter, r *http.Request, access Access) {
	c := &call{s: s, r: r, access: access, id: newRequestID()}
	known, data, err := c.handle(w)
	c.audit(known, err)
	c.answer(w, known, data, err)
}

// handle finds out what is asked for and by whom, and does it.
func (c *call) handle(w http.ResponseWriter) (known action, data any, err *refusal) {
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodPost {
		return known, nil, badMethod
	}
	body, err := readBody(w, c.r)
	if err != nil {
		return known, nil, err
	}
	if c.p, err = parseParameters(c.r, body); err != nil {
		return known, nil, err
	}
	signed, err := c.signature(body)
	if err != nil {
		return known, nil, err
	}
	c.action = signed.action
	known, ok := actions[c.action]
	switch {
	case !ok:
		return known, nil, noAction
	case signed.version == "":
		return known, nil, missing("Version")
	case signed.version != version:
		return known, nil, invalid("Version")
	}
	if err := c.authenticate(signed); err != nil {
		return known, nil, err
	}
	if err := c.checkInstance(known); err != nil {
		return known, nil, err
	}
	data, failed := known.do(c)
	if failed != nil {
		return known, nil, c.refusalOf(failed)
	}
	return known, data, nil
}

// checkInstance refuses requests for instances that are not here (DL-22.16).
func (c *call) checkInstance(known action) *refusal {
	id := c.p["InstanceId"]
	switch {
	case id == "" && !known.anyInstance:
		return missing("InstanceId")
	case id != "" && c.access.InstanceID != "" && id != c.access.InstanceID:
		return noInstance
	}
	return nil
}

// peer is the client's address; one that cannot be read counts as remote.
func (c *call) peer() netip.Addr {
	a, err := netip.ParseAddrPort(c.r.RemoteAddr)
	if err != nil {
		return netip.IPv4Unspecified()
	}
	return a.Addr().Unmap()
}

// administers says whether the user may make and delete virtual hosts.
func (c *call) administers() bool { return slices.Contains(c.who.Tags, auth.Administrator) }

// link is the user's access to a virtual host.
func (c *call) link(v message.VHost) *broker.Connection { return c.s.b.For(c.who, v) }

// in calls f with a virtual host that the user may look into, and everything locked
// for reading. One it may not see is not there for it.
func (c *call) in(name message.VHost, f func(v *topology.VHost) *refusal) (err *refusal) {
	c.s.b.Read(func(state *topology.State, u *auth.Users) {
		v, ok := state.VHost(name)
		if !ok || !c.visible.Sees(u, name) {
			err = noVHost
			return
		}
		err = f(v)
	})
	return err
}

// findVHost refuses what is about a virtual host that is not there.
func (c *call) findVHost(name message.VHost) *refusal {
	return c.in(name, func(*topology.VHost) *refusal { return nil })
}

// newRequestID makes a name for a request, in the form of a UUID, as Alibaba's gateway does.
func newRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%X-%X-%X-%X-%X", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

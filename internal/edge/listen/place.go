package listen

import (
	"container/list"
	"net"
	"net/netip"

	"bartleby.mq/internal/run/share"
)

// Place is that of a connection whose client is not let in yet. Its methods may be called by any
// goroutine; once it is Opened the others do nothing.
type Place struct {
	s    *Server // nil: there was no place
	raw  net.Conn
	from netip.Prefix

	// Guarded by s.mu.
	taken             bool
	inAddress, inNode *list.Element // of waiting; nil while it is needed
	refused           bool          // else it is put off
}

// strangers are the connections of one address that are not let in yet.
type strangers struct {
	n       int
	waiting waiting
}

// waiting are places whose clients wait for us, those that have begun first in front, and that may be given to others.
type waiting struct{ refused, putOff list.List }

func (w *waiting) of(p *Place) *list.List {
	if p.refused {
		return &w.refused
	}
	return &w.putOff
}

// admit counts a connection among those of its address that are not let in yet, unless
// there are too many.
func (s *Server) admit(raw net.Conn, peer net.Addr) (p *Place, ok bool) {
	from := share.Network(peer.String())
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.strangers[from]
	if most := s.limits.Handshakes; most > 0 && of != nil && of.n >= most && !s.makeRoom(&of.waiting) {
		s.Logger.Warn("connection refused", "peer", peer.String(), "reason", "too many handshakes from one address", "limit", most)
		return &Place{}, false
	}
	if of = s.strangers[from]; of == nil {
		of = new(strangers)
		s.strangers[from] = of
	}
	of.n++
	return &Place{s: s, raw: raw, from: from, taken: true}, true
}

// makeRoom ends the connection that is missed least, if there is one: of those whose password was wrong the
// one that has been for longest; else of those whose password is put off the one that came last, so that who floods
// a node makes its own wait and not those who came before. REQUIRES: s.mu is held.
func (s *Server) makeRoom(w *waiting) bool {
	e := w.refused.Front()
	if e == nil {
		e = w.putOff.Back()
	}
	if e == nil {
		return false
	}
	p := e.Value.(*Place)
	s.Logger.Warn("closed a connection before its login to make room for another", "peer", p.raw.RemoteAddr().String(), "refused", p.refused)
	p.leave()
	delete(s.open, p.raw)
	_ = p.raw.Close() // its session finds out
	return true
}

// Opened says that the client is let in, or that its connection has ended.
func (p *Place) Opened() {
	if p.s == nil {
		return
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.leave()
}

// leave gives the place back. REQUIRES: s.mu is held.
func (p *Place) leave() {
	if !p.taken {
		return
	}
	p.unlist()
	p.taken = false
	of := p.s.strangers[p.from]
	if of.n--; of.n == 0 {
		delete(p.s.strangers, p.from)
	}
}

// unlist takes the place out of those that may be given to others. REQUIRES: s.mu is held, and it is taken.
func (p *Place) unlist() {
	if p.inNode == nil {
		return
	}
	p.s.strangers[p.from].waiting.of(p).Remove(p.inAddress)
	p.s.waiting.of(p).Remove(p.inNode)
	p.inAddress, p.inNode = nil, nil
}

// PutOff says that the client's password is not looked at yet, as there are many guesses.
func (p *Place) PutOff() { p.list(false) }

// Refused says that the client will not be let in, and is told late.
func (p *Place) Refused() { p.list(true) }

func (p *Place) list(refused bool) {
	if p.s == nil {
		return
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if !p.taken || p.inNode != nil && p.refused == refused {
		return
	}
	p.unlist()
	p.refused = refused
	p.inAddress = p.s.strangers[p.from].waiting.of(p).PushBack(p)
	p.inNode = p.s.waiting.of(p).PushBack(p)
}

// Needed takes that back.
func (p *Place) Needed() {
	if p.s == nil {
		return
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.taken {
		p.unlist()
	}
}

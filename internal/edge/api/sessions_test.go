package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/run/broker"
)

// A session ends an hour after its last use, and twelve hours after the login.
func TestSessionsRunOut(t *testing.T) {
	var s sessions
	now := time.Unix(1e9, 0)
	ada := &broker.Identity{Name: "ada"}
	idle, busy := s.begin(ada, "", false, now), s.begin(ada, "", false, now)
	for range 11 {
		now = now.Add(sessionIdle - time.Second)
		if s.use(busy, now) == nil {
			t.Fatal("a session that is in use ended")
		}
	}
	if s.use(idle, now) != nil {
		t.Error("an idle session is still open")
	}
	if now = now.Add(sessionIdle - time.Second); s.use(busy, now) == nil {
		t.Error("a session ended before its time")
	}
	if now = now.Add(time.Hour / 2); s.use(busy, now) != nil {
		t.Error("a session is open for longer than twelve hours")
	}
	if len(s.open) != 0 {
		t.Errorf("%d sessions are kept that are over", len(s.open))
	}
}

// Whatever users do, a node keeps a bounded number of sessions, and none that is over while it needs room.
func TestSessionsAreBounded(t *testing.T) {
	var s sessions
	now := time.Unix(1e9, 0)
	for i := range 2 * maxSessions {
		now = now.Add(time.Millisecond)
		s.begin(&broker.Identity{Name: fmt.Sprintf("user-%d", i%200)}, "", false, now)
		if len(s.open) > maxSessions {
			t.Fatalf("%d sessions are open", len(s.open))
		}
	}
	if len(s.open) != maxSessions {
		t.Errorf("%d sessions are open, want %d", len(s.open), maxSessions)
	}
	s.begin(&broker.Identity{Name: "late"}, "", false, now.Add(sessionLife))
	if len(s.open) != 1 {
		t.Errorf("%d sessions are kept, all but one of which are over", len(s.open))
	}
}

// What a backend has said holds for a minute, and not for a change.
func TestWhenABackendIsAskedAgain(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := &session{identity: new(broker.Identity), asked: now}
	if s.isDue(now.Add(time.Hour), true) {
		t.Error("of an account of the node nobody is asked")
	}
	const secret = "the secret of a cookie"
	kept := sealed(secret, "a password")
	if opened(secret, kept) != "a password" || opened("another secret", kept) != "" || strings.Contains(string(kept), "password") {
		t.Error("the password is not what was sealed, or others can read it")
	}
	r := &request{local: true}
	if r.goesOn() != nil {
		t.Error("the operator is asked")
	}
}

// A login lasts no longer than the configuration says, also if it is in use.
func TestSessionsEndAfterTheirConfiguredLife(t *testing.T) {
	s, now := sessions{life: time.Minute}, time.Now()
	secret := s.begin(&broker.Identity{Name: "ada"}, "", false, now)
	if s.use(secret, now.Add(time.Minute-time.Second)) == nil {
		t.Error("the session ends before its time")
	}
	if s.use(secret, now.Add(time.Minute)) != nil {
		t.Error("the session goes on after its time")
	}
}

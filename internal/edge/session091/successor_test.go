package session091_test

import (
	"testing"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// BR-2.8: who has logged in and not yet opened a virtual host goes with the account, too: one that is made under the
// same name meanwhile is somebody else's.
func TestBR_2_8_ALoginEndsWithItsAccount(t *testing.T) {
	s := serve(t, broker.Options{})
	put := func(password string) {
		t.Helper()
		hash := must[auth.PasswordHash](t)(s.b.HashPassword(password))
		must[declare.Result](t)(s.b.By("").Do(declare.PutUser{Name: "u", Password: hash, Tags: nil}))
		must[declare.Result](t)(s.b.By("").Do(declare.PutPermission{Permission: auth.Permission{User: "u", VHost: "/", Configure: ".*", Write: ".*", Read: ".*"}}))
	}
	put("old")
	w := s.dial(t)
	w.methods(0, amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00u\x00old", Locale: "en_US"})
	tune := await[*amqp091.ConnectionTune](w)
	if r := must[declare.Result](t)(s.b.By("").Do(declare.DeleteUser{Name: "u"})); !r.Existed {
		t.Fatal("there was no such user")
	}
	put("new")
	w.methods(0, amqp091.ConnectionTuneOk{ChannelMax: tune.ChannelMax, FrameMax: tune.FrameMax}, amqp091.ConnectionOpen{VirtualHost: "/"})
	m, ok := w.next().(*amqp091.ConnectionClose)
	if want := "NOT_ALLOWED - access to vhost '/' refused for user 'u'"; !ok || m.ReplyCode != amqp091.CodeNotAllowed || m.ReplyText != want {
		t.Errorf("told %v, want %q", m, want)
	}
}

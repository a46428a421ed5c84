package broker

import (
	"testing"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// told is a client that notes whether it was terminated.
type told struct{ gone bool }

func (c *told) Terminate(uint16, string)         { c.gone = true }
func (c *told) Status() (st ConnectionStatus)    { return st }
func (c *told) ChannelStatuses() []ChannelStatus { return nil }

// afterwards does something between a change and what follows from it.
type afterwards struct{ do func() }

func (h *afterwards) Check(topology.Parameter, Setter) error { return nil }
func (h *afterwards) Changed() {
	if do := h.do; do != nil {
		h.do = nil
		do()
	}
}

// BR-2.8, BR-3.8: the connections of a deleted object are closed. Those of a successor of the same name, made before
// that, are not.
func TestBR_2_8_DeletionsCloseNoConnectionOfASuccessor(t *testing.T) {
	for name, remove := range map[string]func(*Broker) error{
		"user":  func(b *Broker) error { _, err := b.By("").Do(declare.DeleteUser{Name: "u"}); return err },
		"vhost": func(b *Broker) error { _, err := b.By("").Do(declare.DeleteVHost{Name: "v"}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			b := openWith(t, Options{})
			h := &afterwards{}
			b.HandleParameters("test", h)
			connect := func() *told {
				if _, err := b.By("").Do(declare.PutVHost{Name: "v", Change: declare.All(topology.Metadata{}), OnlyNew: true}); err != nil {
					t.Error(err)
				}
				if _, err := b.By("").Do(declare.PutUser{Name: "u", Password: auth.PasswordHash{}, Tags: nil}); err != nil {
					t.Error(err)
				}
				if _, err := b.By("").Do(declare.PutPermission{Permission: auth.Permission{User: "u", VHost: "v"}}); err != nil {
					t.Error(err)
				}
				client := &told{}
				c, err := b.Connect(Login{User: "u"}, Peer{Name: "test"}, message.VHost("v"), client)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(c.Disconnect)
				return client
			}
			old := connect()
			var successor *told
			h.do = func() { successor = connect() }
			if err := remove(b); err != nil {
				t.Fatal(err)
			}
			if !old.gone || successor == nil || successor.gone {
				t.Errorf("the old client is gone: %v, its successor: %+v", old.gone, successor)
			}
		})
	}
}

// DL-22.1: a client that connects while its virtual host is made anew gets the rules of the new one.
func TestDL_22_1_AConnectionHasTheProfileOfTheVirtualHostThatItEnters(t *testing.T) {
	b := openWith(t, Options{})
	if _, err := b.By("").As(&Identity{Name: "guest"}).Do(declare.PutVHost{Name: "v", Change: declare.All(topology.Metadata{}), OnlyNew: true}); err != nil {
		t.Fatal(err)
	}
	c := b.For(&Identity{Name: "guest"}, "v")
	if _, err := b.By("").Do(declare.DeleteVHost{Name: "v"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.By("").As(&Identity{Name: "guest"}).Do(declare.PutVHost{Name: "v", Change: declare.All(topology.Metadata{Profile: deadletter.ApsaraMQ}), OnlyNew: true}); err != nil {
		t.Fatal(err)
	}
	c.client = &told{}
	if err := b.look(func() {
		if err := c.register(); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Disconnect)
	if c.Apsara() == nil {
		t.Error("it has the rules of the virtual host that was there before")
	}
}

package broker

import (
	"math/rand/v2"
	"testing"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// The limits of a user or a virtual host are checked without a look at all connections.
func TestLimitsLookAtNoOtherConnection(t *testing.T) {
	b := openWith(t, Options{})
	if _, err := b.By("").Do(declare.SetUserLimits{Name: "guest", Limits: map[auth.Limit]any{auth.MaxConnections: int64(10), auth.MaxChannels: int64(10)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.By("").Do(declare.SetVHostLimits{Name: "/", Limits: map[topology.Limit]any{topology.MaxConnections: int64(10)}}); err != nil {
		t.Fatal(err)
	}
	for _, act := range []func(c *Connection) error{
		(*Connection).OpenChannel,
		func(*Connection) error {
			other, err := b.Connect(Login{User: "guest"}, Peer{}, "/", nil)
			if err == nil {
				other.Disconnect()
			}
			return err
		},
	} {
		c, err := b.Connect(Login{User: "guest"}, Peer{}, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		b.open[nil] = struct{}{} // whoever looks at it panics
		err = act(c)
		delete(b.open, nil)
		if err != nil {
			t.Error(err)
		}
		c.Disconnect()
	}
}

// The limits apply to what is open, whatever was opened and closed before, in any order.
func TestLimitsCountWhatIsOpen(t *testing.T) {
	b := openWith(t, Options{})
	if _, err := b.By("guest").As(&Identity{Name: "guest"}).Do(declare.PutVHost{Name: "v", Change: declare.All(topology.Metadata{})}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.By("").Do(declare.PutPermission{Permission: auth.Permission{User: "guest", VHost: "v", Configure: ".*", Write: ".*", Read: ".*"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.By("").Do(declare.SetUserLimits{Name: "guest", Limits: map[auth.Limit]any{auth.MaxConnections: int64(6), auth.MaxChannels: int64(8)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.By("").Do(declare.SetVHostLimits{Name: "v", Limits: map[topology.Limit]any{topology.MaxConnections: int64(3)}}); err != nil {
		t.Fatal(err)
	}
	type open struct {
		c        *Connection
		channels int64
	}
	var all []*open
	r := rand.New(rand.NewPCG(1, 2))
	for step := range 5000 {
		inV, channels := 0, int64(0)
		for _, o := range all {
			channels += o.channels
			if o.c.VHost == "v" {
				inV++
			}
		}
		switch k := r.IntN(10); {
		case k < 3 || len(all) == 0:
			vhost := []message.VHost{"/", "v"}[r.IntN(2)]
			c, err := b.Connect(Login{User: "guest"}, Peer{}, vhost, nil)
			if may := len(all) < 6 && (vhost == "/" || inV < 3); may != (err == nil) {
				t.Fatalf("step %d: with %d connections, %d of them in v, one for %s: %v", step, len(all), inV, vhost, err)
			}
			if err == nil {
				all = append(all, &open{c, 0})
			}
		case k < 7:
			o := all[r.IntN(len(all))]
			err := o.c.OpenChannel()
			if (channels < 8) != (err == nil) {
				t.Fatalf("step %d: with %d channels: %v", step, channels, err)
			}
			if err == nil {
				o.channels++
			}
		case k < 9:
			if o := all[r.IntN(len(all))]; o.channels > 0 {
				o.c.CloseChannel()
				o.channels--
			}
		default:
			i := r.IntN(len(all))
			o := all[i]
			all = append(all[:i], all[i+1:]...)
			before := r.IntN(2) == 0 // or its channels are closed after it is forgotten
			for range o.channels {
				if before {
					o.c.CloseChannel()
				} else {
					defer o.c.CloseChannel()
				}
			}
			o.c.Disconnect()
			o.c.Disconnect() // once more changes nothing
		}
	}
	for _, o := range all {
		o.c.Disconnect()
	}
	if len(b.ofUser)+len(b.ofVHost) != 0 {
		t.Errorf("with nothing open there are counts: %v, %v", b.ofUser, b.ofVHost)
	}
}

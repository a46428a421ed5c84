package session10_test

import (
	"testing"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp10"
)

// An operator sees the connection, its sessions and their links.
func TestStatuses(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	n.publish(t, "q", "a", "b", "c")
	c := n.session(t)
	c.publisher(0, 0, "/queues/q")
	c.transfer(0, one(0), text("d"))
	await[*amqp10.Disposition](c)
	c.manage(0, 9, 1)
	c.consumer(0, 3, "q", 10)
	for range 4 {
		awaitTransfer(c)
	}
	c.send(0, &amqp10.Flow{NextIncomingID: amqp10.Some[uint32](4), IncomingWindow: 20, NextOutgoingID: 1, OutgoingWindow: 30})
	c.fence()
	for _, conn := range n.b.Connections() {
		client, ok := conn.Client().(broker.SessionClient)
		if !ok {
			continue
		}
		st := client.Status()
		if st.Protocol != "AMQP 1-0" || st.Container != "test" || st.User != "guest" || st.VHost != "/" || st.Mechanism != "PLAIN" || st.Channels != 1 || st.ChannelMax != 63 {
			t.Errorf("%+v", st)
		}
		list := client.SessionStatuses()
		if len(list) != 1 || len(list[0].Incoming) != 2 || len(list[0].Outgoing) != 2 {
			t.Fatalf("%+v", list)
		}
		s := &list[0]
		if s.Unsettled != 4 || s.NextOutgoingID != 4 || s.NextIncomingID != 1 || s.RemoteWindow != 20 || s.RemoteOutgoing != 30 || s.IncomingWindow != 399 || s.HandleMax != 255 {
			t.Errorf("%+v", s)
		}
		if in := s.Incoming[1]; in.Name != "p" || in.Target != "/queues/q" || in.DeliveryCount != 1 || in.Credit != 169 || in.Unconfirmed != 0 || in.SettleMode != "mixed" {
			t.Errorf("%+v", in)
		}
		if out := s.Outgoing[1]; out.Name != "c" || out.Handle != 3 || out.Source != "/queues/q" || out.Queue != "q" || out.DeliveryCount != 4 || out.Credit != 6 || out.Settled {
			t.Errorf("%+v", out)
		}
		if in := s.Incoming[0]; !in.Management || in.Handle != 9 || in.Target != "/management" || in.Credit != 8 || in.SettleMode != "settled" {
			t.Errorf("requests: %+v", in)
		}
		if out := s.Outgoing[0]; !out.Management || out.Handle != 1 || out.Source != "/management" || !out.Settled {
			t.Errorf("answers: %+v", out)
		}
		if opened := n.b.Totals.ChannelsOpened.Load(); opened != 2 {
			t.Errorf("%d channels were opened, want the two of AMQP 0-9-1", opened)
		}
		if n := client.Links(); n != (broker.LinkCounts{Publishers: 1, Consumers: 1}) {
			t.Errorf("%+v, want a publisher and a consumer", n)
		}
		return
	}
	t.Error("the connection is not listed")
}

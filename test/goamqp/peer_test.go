package goamqp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"bartleby.mq/internal/wire/amqp10"
	"github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"
)

const maxFrameSize = 4096

// peer is as much of a broker as one client needs: it says whatever the story wants, and gives what the client
// sent as values.
type peer struct {
	conn net.Conn
	buf  []byte
	out  []byte
}

// next returns the next frame that has a body.
func (p *peer) next() (amqp10.Frame, error) {
	chunk := make([]byte, 4096)
	for {
		f, n, err := amqp10.NextFrame(p.buf, maxFrameSize)
		if err != nil {
			return f, err
		}
		if n > 0 {
			p.buf = p.buf[n:]
			if len(f.Body) > 0 {
				return f, nil
			}
			continue
		}
		if n, err = p.conn.Read(chunk); err != nil {
			return f, err
		}
		p.buf = append(append([]byte{}, p.buf...), chunk[:n]...) // what was read before stays as it is
	}
}

// header reads a protocol header and sends the same one.
func (p *peer) header(want string) error {
	for len(p.buf) < amqp10.ProtocolHeaderSize {
		chunk := make([]byte, 4096)
		n, err := p.conn.Read(chunk)
		if err != nil {
			return err
		}
		p.buf = append(p.buf, chunk[:n]...)
	}
	got := string(p.buf[:amqp10.ProtocolHeaderSize])
	p.buf = p.buf[amqp10.ProtocolHeaderSize:]
	if got != want {
		return fmt.Errorf("got protocol header %q, want %q", got, want)
	}
	_, err := io.WriteString(p.conn, want)
	return err
}

func (p *peer) send(composites ...amqp10.Composite) error {
	p.out = p.out[:0]
	for _, c := range composites {
		p.out = amqp10.AppendFrame(p.out, 0, c)
	}
	_, err := p.conn.Write(p.out)
	return err
}

// expect reads the next frame into c and returns the payload.
func (p *peer) expect(c amqp10.Composite) ([]byte, error) {
	f, err := p.next()
	if err != nil {
		return nil, fmt.Errorf("waiting for %v: %w", c.Descriptor(), err)
	}
	_, v, payload, err := amqp10.ReadPerformative(f)
	if err != nil {
		return nil, err
	}
	if err := c.Decode(v); err != nil {
		return nil, fmt.Errorf("%s: %w", amqp10.FrameString(f), err)
	}
	return payload, nil
}

// check returns an error if a value is not what it should be.
func check(what string, got, want any) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("%s: %s", what, diff)
	}
	return nil
}

// open is the story until a session has begun.
func (p *peer) open() error {
	if err := p.header(amqp10.ProtocolHeaderSASL); err != nil {
		return err
	}
	if err := p.send(&amqp10.SASLMechanisms{SASLServerMechanisms: amqp10.MustValue(amqp10.AppendSymbols(nil, amqp10.MechanismPlain, amqp10.MechanismAnonymous))}); err != nil {
		return err
	}
	var init amqp10.SASLInit
	if _, err := p.expect(&init); err != nil {
		return err
	}
	_, user, password, err := amqp10.ParsePlain(init.InitialResponse)
	if err != nil {
		return err
	}
	if err := errors.Join(
		check("mechanism", string(init.Mechanism), amqp10.MechanismPlain), check("user", string(user), "u"), check("password", string(password), "p"),
	); err != nil {
		return err
	}
	if err := p.send(&amqp10.SASLOutcome{Code: amqp10.SASLCodeOK}); err != nil {
		return err
	}
	if err := p.header(amqp10.ProtocolHeader); err != nil {
		return err
	}
	var open amqp10.Open
	if _, err := p.expect(&open); err != nil {
		return err
	}
	if err := errors.Join(
		check("container-id", string(open.ContainerID), "client"), check("hostname", string(open.Hostname), "vhost:v"),
		check("max-frame-size", open.MaxFrameSize, amqp10.Some(uint32(2048))), check("idle-time-out", open.IdleTimeOut, amqp10.Some(uint32(15_000))), // half of it, as 2.4.5 advises
		check("channel-max", open.ChannelMax, amqp10.Some(uint16(9))), check("properties", fromValue(open.Properties), any(map[string]any{"product": "story"})),
	); err != nil {
		return err
	}
	b, start := amqp10.BeginMap(nil)
	b = amqp10.AppendString(amqp10.AppendSymbol(b, "product"), "Bartleby")
	b = amqp10.EndCompound(b, start, 2)
	if err := p.send(&amqp10.Open{ContainerID: []byte("broker"), MaxFrameSize: amqp10.Some(uint32(maxFrameSize)), Properties: amqp10.MustValue(b)}); err != nil {
		return err
	}
	var begin amqp10.Begin
	if _, err := p.expect(&begin); err != nil {
		return err
	}
	if begin.RemoteChannel.Set || begin.IncomingWindow == 0 || begin.OutgoingWindow == 0 {
		return fmt.Errorf("got %+v", begin)
	}
	return p.send(&amqp10.Begin{RemoteChannel: amqp10.Some(uint16(0)), NextOutgoingID: 0, IncomingWindow: 5000, OutgoingWindow: 5000})
}

// close is the story from where the client closes the session.
func (p *peer) close() error {
	if _, err := p.expect(&amqp10.End{}); err != nil {
		return err
	}
	if err := p.send(&amqp10.End{}); err != nil {
		return err
	}
	var end amqp10.Close
	if _, err := p.expect(&end); err != nil {
		return err
	}
	if end.Error != nil {
		return fmt.Errorf("closed with %s", end.Error.Condition)
	}
	return p.send(&amqp10.Close{})
}

// play runs the peer's story and the client's against each other.
func play(t *testing.T, broker func(*peer) error, client func(context.Context, *amqp.Conn, *amqp.Session) error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	done := make(chan error, 1)
	go func() {
		defer ours.Close()
		p := &peer{conn: ours}
		err := p.open()
		if err == nil {
			err = broker(p)
		}
		done <- err
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err = func() error {
		conn, err := amqp.NewConn(ctx, theirs, &amqp.ConnOptions{
			ContainerID: "client", HostName: "vhost:v", MaxFrameSize: 2048, IdleTimeout: 30 * time.Second, MaxSessions: 9,
			Properties: map[string]any{"product": "story"}, SASLType: amqp.SASLTypePlain("u", "p"),
		})
		if err != nil {
			return err
		}
		if err := check("the broker's properties", conn.Properties(), map[string]any{"product": "Bartleby"}); err != nil {
			return err
		}
		session, err := conn.NewSession(ctx, nil)
		if err != nil {
			return err
		}
		return client(ctx, conn, session)
	}()
	if err != nil {
		theirs.Close()
	}
	if brokers := <-done; brokers != nil || err != nil {
		t.Fatalf("the broker's end: %v; the client's: %v", brokers, err)
	}
}

// A client sends messages, large ones in several transfers, and is told what became of each.
func TestClientsSend(t *testing.T) {
	large := make([]byte, 3*maxFrameSize)
	for i := range large {
		large[i] = byte(i)
	}
	rejected := &amqp10.Rejected{Error: &amqp10.Error{Condition: []byte(amqp10.ConditionPreconditionFailed), Description: []byte("too large")}}
	b, start := amqp10.BeginMap(nil)
	b = amqp10.AppendInt(amqp10.AppendSymbol(b, "x-delay"), 5000)
	modified := &amqp10.Modified{DeliveryFailed: true, UndeliverableHere: true, MessageAnnotations: amqp10.MustValue(amqp10.EndCompound(b, start, 2))}
	outcomes := []amqp10.Composite{&amqp10.Accepted{}, rejected, &amqp10.Released{}, modified}
	sent := []*amqp.Message{amqp.NewMessage([]byte("one")), amqp.NewMessage(large), {Value: "three"}, {ApplicationProperties: map[string]any{"k": int32(4)}, Data: [][]byte{{4}}}}

	broker := func(p *peer) error {
		var attach amqp10.Attach
		if _, err := p.expect(&attach); err != nil {
			return err
		}
		var source amqp10.Source
		var target amqp10.Target
		if err := errors.Join(source.Decode(attach.Source), target.Decode(attach.Target)); err != nil {
			return err
		}
		if err := errors.Join(
			check("name", string(attach.Name), "sender"), check("role", attach.Role, amqp10.RoleSender), check("target", string(target.Address), "/exchanges/x/k"),
			check("durable", target.Durable, amqp10.TerminusDurabilityUnsettledState), check("expiry-policy", target.ExpiryPolicy, amqp10.TerminusExpiryPolicyNever),
			check("timeout", target.Timeout, uint32(7)), check("target's capabilities", symbols(target.Capabilities), []string{"queue"}),
			check("source", string(source.Address), "me"), check("snd-settle-mode", attach.SndSettleMode.Value, amqp10.SenderSettleModeMixed),
		); err != nil {
			return err
		}
		if err := p.send(
			&amqp10.Attach{
				Name: attach.Name, Handle: 5, Role: amqp10.RoleReceiver, Source: attach.Source, Target: attach.Target, MaxMessageSize: amqp10.Some(uint64(1 << 24)),
				OfferedCapabilities: amqp10.MustValue(amqp10.AppendSymbol(nil, "one")),
			},
			&amqp10.Flow{NextIncomingID: amqp10.Some(uint32(0)), IncomingWindow: 5000, OutgoingWindow: 5000, Handle: amqp10.Some(uint32(5)), DeliveryCount: amqp10.Some(uint32(0)), LinkCredit: amqp10.Some(uint32(100))},
		); err != nil {
			return err
		}
		for i, outcome := range outcomes {
			var message []byte
			var first, next amqp10.Transfer
			for frames := 0; ; frames++ {
				into := &next
				if frames == 0 {
					into = &first
				}
				payload, err := p.expect(into)
				if err != nil {
					return err
				}
				message = append(message, payload...)
				if !into.More {
					break
				}
			}
			if err := errors.Join(check("delivery-id", first.DeliveryID, amqp10.Some(uint32(i))), check("message-format", first.MessageFormat, amqp10.Some(uint32(0)))); err != nil {
				return err
			}
			want, err := sent[i].MarshalBinary()
			if err != nil {
				return err
			}
			if err := check("message", message, want); err != nil {
				return err
			}
			if _, err := seen(message); err != nil {
				return err
			}
			if err := p.send(&amqp10.Disposition{Role: amqp10.RoleReceiver, First: uint32(i), Settled: true, State: amqp10.MustValue(outcome.Append(nil))}); err != nil {
				return err
			}
		}
		var detach amqp10.Detach
		if _, err := p.expect(&detach); err != nil {
			return err
		}
		if err := check("closed", detach.Closed, true); err != nil {
			return err
		}
		if err := p.send(&amqp10.Detach{Handle: 5, Closed: true}); err != nil {
			return err
		}
		return p.close()
	}
	client := func(ctx context.Context, conn *amqp.Conn, session *amqp.Session) error {
		sender, err := session.NewSender(ctx, "/exchanges/x/k", &amqp.SenderOptions{
			Name: "sender", SourceAddress: "me", TargetDurability: amqp.DurabilityUnsettledState, TargetExpiryPolicy: amqp.ExpiryPolicyNever, TargetExpiryTimeout: 7,
			TargetCapabilities: []string{"queue"},
		})
		if err != nil {
			return err
		}
		if err := check("max-message-size", sender.MaxMessageSize(), uint64(1<<24)); err != nil {
			return err
		}
		want := []amqp.DeliveryState{
			&amqp.StateAccepted{},
			&amqp.StateRejected{Error: &amqp.Error{Condition: "amqp:precondition-failed", Description: "too large"}},
			&amqp.StateReleased{},
			&amqp.StateModified{DeliveryFailed: true, UndeliverableHere: true, MessageAnnotations: amqp.Annotations{"x-delay": int32(5000)}},
		}
		for i, m := range sent {
			receipt, err := sender.SendWithReceipt(ctx, m, nil)
			if err != nil {
				return err
			}
			state, err := receipt.Wait(ctx)
			if err != nil {
				return err
			}
			if diff := cmp.Diff(want[i], state); diff != "" {
				return errors.New(diff)
			}
		}
		return errors.Join(sender.Close(ctx), session.Close(ctx), conn.Close())
	}
	play(t, broker, client)
}

// A client receives messages, large ones in several transfers, and says what became of each.
func TestClientsReceive(t *testing.T) {
	body := make([]byte, 5000)
	message := (&amqp10.Header{Durable: true, DeliveryCount: 2}).Append(nil)
	message = (&amqp10.Properties{MessageID: amqp10.MustValue(amqp10.AppendString(nil, "m"))}).Append(message)
	message = amqp10.AppendData(message, body)
	settled := make(chan struct{}) // closed when the client has settled everything

	broker := func(p *peer) error {
		var attach amqp10.Attach
		if _, err := p.expect(&attach); err != nil {
			return err
		}
		var source amqp10.Source
		if err := source.Decode(attach.Source); err != nil {
			return err
		}
		filter, _ := source.Filter.Lookup("apache.org:selector-filter:string")
		selector, _ := filter.Underlying().Text()
		if err := errors.Join(
			check("role", attach.Role, amqp10.RoleReceiver), check("source", string(source.Address), "/queues/q"), check("selector", string(selector), "a = 1"),
			check("distribution-mode", string(source.DistributionMode), "copy"), check("link properties", fromValue(attach.Properties), any(map[string]any{"p": true})),
			check("source's capabilities", symbols(source.Capabilities), []string{"queue", "temporary"}),
		); err != nil {
			return err
		}
		if err := p.send(&amqp10.Attach{Name: attach.Name, Handle: 0, Role: amqp10.RoleSender, Source: attach.Source, Target: attach.Target, InitialDeliveryCount: amqp10.Some(uint32(0))}); err != nil {
			return err
		}
		var flow amqp10.Flow
		if _, err := p.expect(&flow); err != nil {
			return err
		}
		if err := check("link-credit", flow.LinkCredit, amqp10.Some(uint32(10))); err != nil {
			return err
		}
		for i := range uint32(4) {
			first := amqp10.Transfer{DeliveryID: amqp10.Some(i), DeliveryTag: []byte{byte(i)}, MessageFormat: amqp10.Some(uint32(0))}
			transfer, sent := first, 0
			for {
				p.out, sent = amqp10.AppendTransfer(p.out[:0], 0, &transfer, 2048, sent, message[:10], message[10:])
				if _, err := p.conn.Write(p.out); err != nil {
					return err
				}
				if sent == len(message) {
					break
				}
				transfer = amqp10.Transfer{}
			}
			var d amqp10.Disposition
			for {
				f, err := p.next()
				if err != nil {
					return err
				}
				descriptor, v, _, err := amqp10.ReadPerformative(f)
				if err != nil {
					return err
				}
				if descriptor == amqp10.DescriptorFlow { // more credit
					continue
				}
				if err := d.Decode(v); err != nil {
					return err
				}
				break
			}
			if err := errors.Join(check("first", d.First, i), check("role", d.Role, amqp10.RoleReceiver), check("settled", d.Settled, true)); err != nil {
				return err
			}
			want := []amqp10.Descriptor{amqp10.DescriptorAccepted, amqp10.DescriptorRejected, amqp10.DescriptorReleased, amqp10.DescriptorModified}[i]
			if err := check("outcome", d.State.Descriptor(), want); err != nil {
				return err
			}
			state := amqp10.NewComposite(want)
			if err := state.Decode(d.State); err != nil {
				return err
			}
			switch state := state.(type) {
			case *amqp10.Rejected:
				info, _ := state.Error.Info.Lookup("exception")
				if err := errors.Join(
					check("condition", string(state.Error.Condition), "app:failed"), check("description", string(state.Error.Description), "no stock"),
					check("info", fromValue(info), any("NoStock")),
				); err != nil {
					return err
				}
			case *amqp10.Modified:
				delay, _ := state.MessageAnnotations.Lookup("x-opt-delivery-time")
				if err := errors.Join(
					check("delivery-failed", state.DeliveryFailed, true), check("undeliverable-here", state.UndeliverableHere, false),
					check("annotation", fromValue(delay), any(int64(77))),
				); err != nil {
					return err
				}
			}
		}
		// The broker ends the connection, and says why.
		<-settled
		if err := p.send(&amqp10.Close{Error: &amqp10.Error{Condition: []byte(amqp10.ConditionConnectionForced), Description: []byte("shutdown")}}); err != nil {
			return err
		}
		_, err := p.expect(&amqp10.Close{})
		return err
	}
	client := func(ctx context.Context, _ *amqp.Conn, session *amqp.Session) error {
		settle := sync.OnceFunc(func() { close(settled) })
		defer settle()
		receiver, err := session.NewReceiver(ctx, "/queues/q", &amqp.ReceiverOptions{
			Credit: 10, Filters: []amqp.LinkFilter{amqp.NewSelectorFilter("a = 1")}, Properties: map[string]any{"p": true},
			SourceCapabilities: []string{"queue", "temporary"}, SourceDistributionMode: amqp.SourceDistributionModeCopy,
		})
		if err != nil {
			return err
		}
		for i := range 4 {
			m, err := receiver.Receive(ctx, nil)
			if err != nil {
				return err
			}
			if err := errors.Join(check("body", m.GetData(), body), check("message-id", m.Properties.MessageID, any("m")), check("delivery-count", m.Header.DeliveryCount, uint32(2))); err != nil {
				return err
			}
			switch i {
			case 0:
				err = receiver.AcceptMessage(ctx, m)
			case 1:
				err = receiver.RejectMessage(ctx, m, &amqp.Error{Condition: "app:failed", Description: "no stock", Info: map[string]any{"exception": "NoStock"}})
			case 2:
				err = receiver.ReleaseMessage(ctx, m)
			case 3:
				err = receiver.ModifyMessage(ctx, m, &amqp.ModifyMessageOptions{DeliveryFailed: true, Annotations: amqp.Annotations{"x-opt-delivery-time": int64(77)}})
			}
			if err != nil {
				return err
			}
		}
		settle()
		_, err = receiver.Receive(ctx, nil)
		var ended *amqp.ConnError
		if !errors.As(err, &ended) || ended.RemoteErr == nil {
			return fmt.Errorf("got %w where the connection ends", err)
		}
		return errors.Join(check("condition", string(ended.RemoteErr.Condition), "amqp:connection:forced"), check("description", ended.RemoteErr.Description, "shutdown"))
	}
	play(t, broker, client)
}

// A client that may not attach is told so by its name.
func TestLinksAreRefused(t *testing.T) {
	broker := func(p *peer) error {
		var attach amqp10.Attach
		if _, err := p.expect(&attach); err != nil {
			return err
		}
		if err := p.send(
			&amqp10.Attach{Name: attach.Name, Role: amqp10.RoleReceiver},
			&amqp10.Detach{Closed: true, Error: &amqp10.Error{Condition: []byte(amqp10.ConditionNotFound), Description: []byte("no exchange 'x'")}},
		); err != nil {
			return err
		}
		if _, err := p.expect(&amqp10.Detach{}); err != nil {
			return err
		}
		return p.close()
	}
	client := func(ctx context.Context, conn *amqp.Conn, session *amqp.Session) error {
		_, err := session.NewSender(ctx, "/exchanges/x", nil)
		var refused *amqp.Error
		if !errors.As(err, &refused) {
			return fmt.Errorf("got %w", err)
		}
		return errors.Join(
			check("condition", string(refused.Condition), "amqp:not-found"), check("description", refused.Description, "no exchange 'x'"),
			session.Close(ctx), conn.Close(),
		)
	}
	play(t, broker, client)
}

func symbols(v amqp10.Value) (all []string) {
	it := v.Symbols()
	for s, ok := it.Next(); ok; s, ok = it.Next() {
		all = append(all, string(s))
	}
	return all
}

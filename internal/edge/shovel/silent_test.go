package shovel_test

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/edge/shovel"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// silentPeer lets clients in, answers the methods it was given answers for, and from then on
// says nothing but heartbeats. Once it has given all its answers it reads no more.
func silentPeer(t *testing.T, answers ...amqp091.Method) (address string, silent <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	quiet, end := make(chan struct{}), make(chan struct{})
	var once sync.Once
	t.Cleanup(func() {
		close(end)
		_ = l.Close()
		serving.Wait()
	})
	serve := func(nc net.Conn) {
		defer func() { _ = nc.Close() }()
		in := bufio.NewReader(nc)
		send := func(channel uint16, m amqp091.Method) { _, _ = nc.Write(amqp091.AppendMethod(nil, channel, m)) }
		receive := func() bool {
			var head [7]byte
			if _, err := io.ReadFull(in, head[:]); err != nil {
				return false
			}
			size := int64(head[3])<<24 | int64(head[4])<<16 | int64(head[5])<<8 | int64(head[6])
			_, err := io.CopyN(io.Discard, in, size+1)
			return err == nil
		}
		if _, err := in.Discard(len(amqp091.ProtocolHeader)); err != nil {
			return
		}
		send(0, amqp091.ConnectionStart{VersionMinor: 9, Mechanisms: "PLAIN", Locales: "en_US"})
		receive()
		send(0, amqp091.ConnectionTune{ChannelMax: 10, FrameMax: 131072, Heartbeat: 10})
		receive()
		receive()
		send(0, amqp091.ConnectionOpenOk{})
		for _, m := range answers {
			if !receive() {
				return
			}
			send(1, m)
		}
		once.Do(func() { close(quiet) })
		beat := time.NewTicker(time.Second)
		defer beat.Stop()
		for {
			select {
			case <-end:
				return
			case <-beat.C:
				if _, err := nc.Write(amqp091.AppendHeartbeat(nil)); err != nil {
					return
				}
			}
		}
	}
	serving.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(nc) })
		}
	})
	return l.Addr().String(), quiet
}

// A peer that goes on with its heartbeats and answers nothing, as a broker that is low on memory
// and reads no more, keeps neither the other shovels nor the node's stop waiting.
func TestAPeerThatFallsSilentHoldsNobodyUp(t *testing.T) {
	for name, answers := range map[string][]amqp091.Method{
		"opening":    nil,
		"publishing": {amqp091.ChannelOpenOk{}, amqp091.ConfirmSelectOk{}},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			address, silent := silentPeer(t, answers...)
			n.declare("a")
			large := []byte(strings.Repeat("x", 1<<20))
			for range 32 { // more than two sockets hold
				p := broker.Publication{Key: []byte("a"), Raw: amqp091.AppendPropsFrom(nil, amqp091.PropertyList{}), Body: [][]byte{large}, Size: len(large)}
				if _, err := n.link.PublishOne(&p); err != nil {
					t.Fatal(err)
				}
			}
			n.mustPut("silent", `{"src-uri":"amqp://","src-queue":"a","dest-uri":"amqp://`+address+`","dest-exchange":"amq.fanout"}`)
			<-silent
			if name == "publishing" {
				n.wait("that the shovel publishes", func() bool {
					l := n.shown()
					return len(l) == 1 && l[0]["pending"] != nil && l[0]["pending"] != int64(0)
				})
			}
			if _, err := n.b.By("").Do(declare.DeleteParameter{VHost: "/", Component: shovel.Component, Name: "silent"}); err != nil {
				t.Fatal(err)
			}
			n.declare("from")
			n.publish("from", 1)
			n.mustPut("other", `{"src-uri":"amqp://","src-queue":"from","dest-uri":"amqp://","dest-queue":"to"}`)
			deadline := time.Now().Add(20 * time.Second)
			for n.ready("to") != 1 {
				if time.Now().After(deadline) {
					t.Fatal("another shovel does not start for " + strconv.Itoa(20) + " s")
				}
				time.Sleep(10 * time.Millisecond)
			}
			n.wait("that all messages are back", func() bool { return n.ready("a") == 32 })
		})
	}
}

// A peer that lets a shovel in and answers its first methods not at all is given up, whichever end it is.
func TestAPeerThatDoesNotAnswerIsGivenUp(t *testing.T) {
	for name, answers := range map[string][]amqp091.Method{
		"opening":   nil,
		"declaring": {amqp091.ChannelOpenOk{}},
		"consuming": {amqp091.ChannelOpenOk{}, amqp091.QueueDeclareOk{Queue: "a"}, amqp091.BasicQosOk{}},
	} {
		for _, end := range []string{"source", "destination"} {
			if name == "consuming" && end == "destination" {
				continue // it confirms, which may take long
			}
			t.Run(name+" "+end, func(t *testing.T) {
				n := start(t)
				n.shovels.SetPatience(50 * time.Millisecond)
				address, _ := silentPeer(t, answers...)
				from, to := address, ""
				if end == "destination" {
					from, to = "", address
				}
				n.mustPut("s", `{"src-uri":"amqp://`+from+`","src-queue":"a","dest-uri":"amqp://`+to+`","dest-queue":"b","reconnect-delay":0}`)
				n.wait("that it is given up", n.state("terminated"))
				if got, want := n.shown()[0]["reason"], "failed to connect to "+end+": the peer does not answer after the login"; got != want {
					t.Errorf("the reason is %q, want %q", got, want)
				}
			})
		}
	}
}

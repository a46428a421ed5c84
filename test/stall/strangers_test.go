package stall

import (
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/wire/amqp091"
)

// stranger is what somebody sends who is not let in.
type stranger struct {
	name string
	sent []byte
	stay bool // for the end of the connection, sending the last frame again and again; else it is opened anew at once
	wait int  // so many connections of each are left open, silent
}

func strangers() []stranger {
	header := []byte(amqp091.ProtocolHeader)
	voids := make(amqp091.Array, 7400)
	table := amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{ClientProperties: amqp091.Table{{Key: "l", Value: voids}}, Mechanism: "PLAIN", Response: "\x00guest\x00wrong"})
	response := amqp091.AppendTable(nil, amqp091.Table{{Key: "LOGIN", Value: "guest"}, {Key: "PASSWORD", Value: "wrong"}, {Key: "l", Value: voids}})[4:]
	inResponse := amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{Mechanism: "AMQPLAIN", Response: string(response)})
	voidsOf := amqp091.Table{{Key: "l", Value: voids}}
	wrong := amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00wrong"})
	return []stranger{
		{"wrong passwords that wait for their answers", append(header[:8:8], wrong...), false, 200},
		{"tables in start-ok", append(header[:8:8], table...), false, 0},
		{"tables in the response of AMQPLAIN", append(header[:8:8], inResponse...), false, 0},
		{"methods that have no place", append(append(header[:8:8], amqp091.AppendMethod(nil, 0, amqp091.ConnectionOpen{VirtualHost: "/"})...), amqp091.AppendMethod(nil, 1, amqp091.QueueDeclare{Queue: "q", Arguments: voidsOf})...), true, 0},
		{"heartbeats", append(header[:8:8], amqp091.AppendHeartbeat(nil)...), true, 0},
	}
}

// bother sends it from so many connections at a time until stopc is closed, and counts connections.
func (s *stranger) bother(connections int, stopc <-chan struct{}, count *atomic.Int64) *sync.WaitGroup {
	var all sync.WaitGroup
	last := s.sent[len(amqp091.ProtocolHeader):]
	for range connections {
		all.Go(func() { // ends when stopc is closed
			var left []net.Conn
			defer func() {
				for _, nc := range left {
					_ = nc.Close()
				}
			}()
			again := slices.Repeat(last, 1+8192/len(last))
			for {
				select {
				case <-stopc:
					return
				default:
				}
				nc, err := net.Dial("tcp", server.AMQP)
				if err != nil {
					return
				}
				_ = nc.SetDeadline(time.Now().Add(5 * time.Second))
				count.Add(1)
				if _, err = nc.Write(s.sent); err == nil && s.stay {
					for err == nil {
						select {
						case <-stopc:
							err = io.EOF
						default:
							_, err = nc.Write(again)
						}
					}
				} else {
					// It does not wait for what becomes of it, but until it is read.
					_, _ = nc.Read(make([]byte, 1))
				}
				_ = nc.(*net.TCPConn).SetLinger(0)
				if left = append(left, nc); len(left) > s.wait {
					_ = left[0].Close()
					left = left[1:]
				}
			}
		})
	}
	return &all
}

// Whoever is not let in keeps nobody waiting who is, nor one who logs in meanwhile.
func TestStrangersAndABystander(t *testing.T) {
	took := 5 * time.Second
	if !*full {
		took = 200 * time.Millisecond
	}
	for _, s := range strangers() {
		t.Run(s.name, func(t *testing.T) {
			before, err := server.Usage()
			if err != nil {
				t.Fatal(err)
			}
			stopc := make(chan struct{})
			var count atomic.Int64
			b := watch(t)
			began := time.Now()
			all := s.bother(20, stopc, &count)
			var logins []time.Duration
			for time.Since(began) < took {
				at := time.Now()
				conn, err := amqp.Dial("amqp://guest:guest@" + server.AMQP + "/")
				if err != nil {
					t.Error("a good login: ", err)
					break
				}
				logins = append(logins, time.Since(at))
				_ = conn.Close()
			}
			close(stopc)
			all.Wait()
			elapsed := time.Since(began)
			saw := stop(t, b)
			after, err := server.Usage()
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(logins)
			if len(logins) == 0 {
				t.Fatal("nobody logged in")
			}
			worst := logins[min(len(logins)-1, len(logins)*999/1000)]
			t.Logf("%s: %d connections of strangers, %.0f a second; the node took %.2f processors", s.name, count.Load(), float64(count.Load())/elapsed.Seconds(), float64(after.CPU-before.CPU)/float64(elapsed))
			t.Logf("  bystander %s", saw)
			t.Logf("  %d good logins, p50 %v, p99.9 %v", len(logins), logins[len(logins)/2].Round(10*time.Microsecond), worst.Round(10*time.Microsecond))
			if *full && worst > 5*bound { // a login is several turns, and takes turns with the guesses
				t.Errorf("the slowest good login took %v, want %v at most", worst, 5*bound)
			}
		})
	}
}

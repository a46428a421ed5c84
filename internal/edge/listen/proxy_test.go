package listen

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"bartleby.mq/internal/wire/amqp091"
)

// header is a PROXY header of a version, from a client at port 7.
func header(t testing.TB, version byte, from, to string) string {
	t.Helper()
	at := func(ip string, port int) *net.TCPAddr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }
	b, err := proxyproto.HeaderProxyFromAddrs(version, at(from, 7), at(to, 5672)).Format()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// whoAmI serves what the connection says of its client.
func whoAmI(nc net.Conn, first []byte, _ *Place) {
	_, _ = io.WriteString(nc, nc.RemoteAddr().String()+" -> "+nc.LocalAddr().String()+" "+string(first))
}

// What a peer tells of its client is believed of trusted proxies only. Nobody claims to be on this
// machine from elsewhere.
func TestWhoseHeadersAreBelieved(t *testing.T) {
	nets := func(texts ...string) (list []netip.Prefix) {
		for _, text := range texts {
			list = append(list, netip.MustParsePrefix(text))
		}
		return list
	}
	for name, tt := range map[string]struct {
		trusted      []netip.Prefix
		socket, says string
		want         string
	}{
		"a proxy on this machine":                {LoopbackProxies, "127.0.0.1:9", "192.0.2.1", "192.0.2.1:7"},
		"a client on this machine":               {LoopbackProxies, "127.0.0.1:9", "127.0.0.1", "127.0.0.1:7"},
		"anybody else":                           {LoopbackProxies, "192.0.2.9:9", "192.0.2.1", "192.0.2.9:9"},
		"anybody else, who claims to be here":    {LoopbackProxies, "192.0.2.9:9", "127.0.0.1", "192.0.2.9:9"},
		"by IPv6":                                {LoopbackProxies, "[2001:db8::9]:9", "::1", "[2001:db8::9]:9"},
		"a trusted proxy":                        {nets("192.0.2.0/24"), "192.0.2.9:9", "198.51.100.1", "198.51.100.1:7"},
		"a trusted proxy on a mapped socket":     {nets("192.0.2.0/24"), "[::ffff:192.0.2.9]:9", "198.51.100.1", "198.51.100.1:7"},
		"a trusted proxy, of its own machine":    {nets("192.0.2.0/24"), "192.0.2.9:9", "127.0.0.1", "192.0.2.9:9"},
		"the same by IPv6":                       {nets("192.0.2.0/24"), "192.0.2.9:9", "::1", "192.0.2.9:9"},
		"not this machine's, if others are told": {nets("192.0.2.0/24"), "127.0.0.1:9", "198.51.100.1", "127.0.0.1:9"},
	} {
		at, err := net.ResolveTCPAddr("tcp", tt.socket)
		if err != nil {
			t.Fatal(err)
		}
		to := "192.0.2.2"
		if strings.Contains(tt.says, ":") {
			to = "2001:db8::2"
		}
		nc, err := readProxyHeader(from{feed{r: bytes.NewReader([]byte(header(t, 2, tt.says, to)))}, at}, tt.trusted)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := nc.RemoteAddr().String(); got != tt.want {
			t.Errorf("%s: from %s, want %s", name, got, tt.want)
		}
	}
}

// from is a connection of a peer anywhere.
type from struct {
	feed
	at net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.at }

// Where proxies are told others are not listened to.
func TestOtherProxiesAreRefused(t *testing.T) {
	_, addr, log := start(t, Options{Proxied: true, Proxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Protocols: speaking(whoAmI)})
	nc := dial(t, addr)
	_, _ = io.WriteString(nc, header(t, 2, "127.0.0.1", "127.0.0.1")+amqp091.ProtocolHeader)
	if got, _ := io.ReadAll(nc); len(got) > 0 || !strings.Contains(log.String(), "not a trusted proxy") {
		t.Errorf("got %q, the log is %s", got, log)
	}
}

// The addresses are those of the header, in both versions, and what follows is not lost.
func TestProxyHeaders(t *testing.T) {
	local := string([]byte("\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"))
	for name, tt := range map[string]struct{ sent, want string }{
		"version 1":            {header(t, 1, "192.0.2.1", "192.0.2.2"), "192.0.2.1:7 -> 192.0.2.2:5672"},
		"version 1, IPv6":      {header(t, 1, "2001:db8::1", "2001:db8::2"), "[2001:db8::1]:7 -> [2001:db8::2]:5672"},
		"version 2":            {header(t, 2, "192.0.2.1", "192.0.2.2"), "192.0.2.1:7 -> 192.0.2.2:5672"},
		"version 2, IPv6":      {header(t, 2, "2001:db8::1", "2001:db8::2"), "[2001:db8::1]:7 -> [2001:db8::2]:5672"},
		"the proxy itself":     {local, "127.0.0.1:"},
		"the proxy itself, v1": {"PROXY UNKNOWN\r\n", "127.0.0.1:"},
		"none":                 {"", ""},
		"a broken one":         {"PROXY TCP4 somewhere\r\n", ""},
		"no end":               {"PROXY TCP4 " + strings.Repeat("1", 200), ""},
		"datagrams":            {"\r\n\r\n\x00\r\nQUIT\n\x21\x12\x00\x0c\x7f\x00\x00\x01\x7f\x00\x00\x01\x00\x07\x00\x08", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, addr, log := start(t, Options{Proxied: true, Protocols: speaking(whoAmI)})
			nc := dial(t, addr)
			if _, err := io.WriteString(nc, tt.sent+amqp091.ProtocolHeader); err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(nc) // a reset is an end too
			if tt.want == "" {
				if len(got) > 0 || !strings.Contains(log.String(), "no PROXY header") {
					t.Errorf("got %q, the log is %s", got, log)
				}
			} else if !strings.HasPrefix(string(got), tt.want) || !strings.HasSuffix(string(got), amqp091.ProtocolHeader) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// The header stands before the handshake of TLS.
func TestProxyHeaderBeforeTLS(t *testing.T) {
	ca, o, _ := secure(t)
	s, _, _ := start(t, Options{Proxied: true, Protocols: speaking(whoAmI)})
	c, err := LoadCredentials(o, s.Logger)
	if err != nil {
		t.Fatal(err)
	}
	at, err := s.ListenTLS("127.0.0.1:0", c)
	if err != nil {
		t.Fatal(err)
	}
	nc := dial(t, at.String())
	if _, err := io.WriteString(nc, header(t, 2, "192.0.2.1", "192.0.2.2")); err != nil {
		t.Fatal(err)
	}
	secured := tls.Client(nc, &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"})
	if _, err := io.WriteString(secured, amqp091.ProtocolHeader); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(secured); !strings.HasPrefix(string(got), "192.0.2.1:7") {
		t.Errorf("got %q, %v", got, err)
	}
}

// A session can write to the socket of a connection that came through a proxy.
func TestProxiedConnectionIsASocket(t *testing.T) {
	ok := make(chan bool, 1)
	_, addr, _ := start(t, Options{Proxied: true, Protocols: speaking(func(nc net.Conn, _ []byte, _ *Place) {
		sc, is := nc.(syscall.Conn)
		if is {
			_, err := sc.SyscallConn()
			is = err == nil
		}
		ok <- is
	})})
	nc := dial(t, addr)
	_, _ = io.WriteString(nc, header(t, 1, "192.0.2.1", "192.0.2.2")+amqp091.ProtocolHeader)
	if !<-ok {
		t.Error("it is none")
	}
}

// One address does not hold all the places of those who are not let in yet.
func TestHandshakesOfOneAddress(t *testing.T) {
	_, addr, log := start(t, Options{Proxied: true, Limits: Limits{Handshakes: 2}, Protocols: speaking(func(nc net.Conn, first []byte, p *Place) {
		_, _ = nc.Write(first)
		var b [1]byte
		if _, err := nc.Read(b[:]); err != nil {
			return
		}
		p.Opened()
		_, _ = nc.Write(b[:])
		_, _ = io.Copy(io.Discard, nc)
	})})
	open := func(from string) net.Conn {
		nc := dial(t, addr)
		_, _ = io.WriteString(nc, header(t, 1, from, "2001:db8::5")+amqp091.ProtocolHeader)
		return nc
	}
	served := func(nc net.Conn, n int) bool {
		_, err := io.ReadFull(nc, make([]byte, n))
		return err == nil
	}
	first, second := open("2001:db8::1"), open("2001:db8::2") // one network
	if !served(first, 8) || !served(second, 8) {
		t.Fatal("two are not served")
	}
	if served(open("2001:db8::3"), 8) {
		t.Error("a third of the same network is served")
	}
	if !served(open("2001:db8:1::1"), 8) {
		t.Error("one of another network is not served")
	}
	_, _ = first.Write([]byte{1})
	if !served(first, 1) {
		t.Fatal("the first is not let in")
	}
	if !served(open("2001:db8::4"), 8) {
		t.Error("with one let in another is not served")
	}
	if !strings.Contains(log.String(), "handshakes from one address") {
		t.Errorf("the log is %s", log)
	}
}

// feed is a connection that has only what was sent.
type feed struct {
	net.Conn
	r *bytes.Reader
}

func (f feed) Read(b []byte) (int, error) { return f.r.Read(b) }
func (f feed) RemoteAddr() net.Addr       { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (f feed) LocalAddr() net.Addr        { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2} }

// Nothing that is sent panics, and behind a header stands what was sent behind it.
func FuzzProxyHeader(f *testing.F) {
	f.Add([]byte(header(f, 1, "192.0.2.1", "192.0.2.2")))
	f.Add([]byte(header(f, 2, "2001:db8::1", "2001:db8::2")))
	f.Add([]byte("PROXY UNKNOWN\r\n"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		nc, err := readProxyHeader(feed{r: bytes.NewReader(append(bytes.Clone(sent), "end"...))}, LoopbackProxies)
		if err != nil {
			return
		}
		_, _ = nc.RemoteAddr().String(), nc.LocalAddr().String()
		if rest, err := io.ReadAll(nc); err != nil || !bytes.HasSuffix(append(bytes.Clone(sent), "end"...), rest) {
			t.Errorf("behind the header stands %q, %v", rest, err)
		}
	})
}

// Who sends no PROXY header counts as the address of its socket, for as long as it takes.
func TestHandshakesBeforeThePROXYHeader(t *testing.T) {
	s, addr, _ := start(t, Options{Proxied: true, Limits: Limits{Handshakes: 2, Header: time.Hour}, Protocols: speaking(func(nc net.Conn, first []byte, _ *Place) {
		_, _ = nc.Write(first)
		_, _ = io.Copy(io.Discard, nc)
	})})
	type end struct {
		of  int
		err error
	}
	ends, all := make(chan end, 3), make([]net.Conn, 3)
	for i := range all {
		all[i] = dial(t, addr)
		go func() {
			_, err := io.ReadFull(all[i], make([]byte, 8))
			ends <- end{i, err}
		}()
	}
	refused := <-ends
	if refused.err == nil || errors.Is(refused.err, os.ErrDeadlineExceeded) {
		t.Fatalf("of three that say nothing none is refused: %v", refused.err)
	}
	heard := (refused.of + 1) % 3
	_, _ = io.WriteString(all[heard], header(t, 1, "192.0.2.1", "192.0.2.2")+amqp091.ProtocolHeader)
	if e := <-ends; e.of != heard || e.err != nil {
		t.Fatalf("with a header: %v", e)
	}
	counts := map[netip.Prefix]int{}
	s.mu.Lock()
	for from, of := range s.strangers {
		counts[from] = of.n
	}
	s.mu.Unlock()
	want := map[netip.Prefix]int{netip.MustParsePrefix("127.0.0.1/32"): 1, netip.MustParsePrefix("192.0.2.1/32"): 1}
	if !maps.Equal(counts, want) {
		t.Errorf("counted are %v, want %v", counts, want)
	}
	for _, nc := range all {
		_ = nc.Close()
	}
	<-ends
}

package shovel

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/broker"
)

// address is the address of one end of a shovel.
type address struct {
	uri   string
	shown string // without the password
	// local means this node, without a socket: an address without a host.
	local bool
	vhost message.VHost
	// user logs in; loopback says that the text of the address means this machine.
	user     string
	loopback bool
}

// parseAddress reads amqp:// and amqps:// addresses. Without a path the virtual host
// is /, and a path of / alone is the virtual host with the empty name, as in RabbitMQ;
// here that is / too.
func parseAddress(text string) (address, error) {
	u, err := url.Parse(text)
	if err != nil {
		return address{}, fmt.Errorf("{invalid_uri,%q}", broker.WithoutLogin(text))
	}
	if u.Scheme != "amqp" && u.Scheme != "amqps" {
		return address{}, fmt.Errorf("{{unexpected_uri_scheme,%q},%q}", u.Scheme, broker.WithoutLogin(text))
	}
	a := address{uri: text, shown: broker.WithoutLogin(text), local: u.Host == "", vhost: "/"}
	if p := strings.TrimPrefix(u.EscapedPath(), "/"); p != "" {
		name, err := url.PathUnescape(p)
		if err != nil {
			return address{}, fmt.Errorf("{invalid_uri,%q}", broker.WithoutLogin(text))
		}
		a.vhost = message.VHost(name)
	}
	a.user = cmp.Or(u.User.Username(), "guest") // whom the client is without one
	ip := net.ParseIP(u.Hostname())
	a.loopback = ip.IsLoopback() || ip.IsUnspecified() || u.Hostname() == "" || strings.EqualFold(u.Hostname(), "localhost")
	return a, nil
}

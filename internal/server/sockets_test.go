package server

import (
	"math"
	"strings"
	"testing"

	"bartleby.mq/internal/config"
)

// However many connections clients open, what the journal and the store need to go on is left of the
// files that the process may have open: without it the node ends.
func TestConnectionsLeaveFilesForTheDisk(t *testing.T) {
	for _, limit := range []int{256, 1024, 4096, 20_000, 65_536, 1 << 20} {
		for _, open := range []int{0, 20, limit / 4} {
			for _, configured := range []int{0, 1, 500, math.MaxInt32} {
				c := config.Default()
				c.MaxConnections = configured
				s := &Server{sockets: shareSockets(open, limit)}
				amqp, web := s.listenLimits(&c).Connections, httpListeners*s.sockets.http
				if left := limit - open - amqp - web; left < min(fileReserve, (limit-open)*3/4) {
					t.Errorf("of %d files, %d of them open, with max_connections %d, %d for AMQP and %d for HTTP leave %d", limit, open, configured, amqp, web, left)
				}
				if amqp <= 0 || web <= 0 || configured > 0 && amqp > configured || configured == 1 && amqp != 1 {
					t.Errorf("of %d files, with max_connections %d: %d for AMQP, %d for HTTP", limit, configured, amqp, web)
				}
			}
		}
	}
	// Where nobody knows how many files there may be what is configured counts.
	c := config.Default()
	if s := (&Server{sockets: shareSockets(0, 0)}); s.listenLimits(&c).Connections != 0 || s.sockets.http != maxHTTPConnections {
		t.Error("there is a bound")
	}
}

func TestARunningNodeBoundsItsConnectionsByItsFiles(t *testing.T) {
	_, limit := openFiles()
	if limit == 0 {
		t.Skip("this system does not say how many files there may be")
	}
	o, log := options(t.TempDir())
	o.Config.MaxConnections = math.MaxInt32
	s := mustStart(t, o)
	defer mustStop(t, s)
	most := s.listenLimits(s.config.Load()).Connections
	if most <= 0 || most+httpListeners*s.sockets.http > limit {
		t.Errorf("%d connections of %d files", most, limit)
	}
	if want := "max_connections is larger than"; !strings.Contains(log.String(), want) {
		t.Errorf("the log does not say %q", want)
	}
	if next := config.Default(); s.Reload(next) != nil || s.listenLimits(s.config.Load()).Connections != most {
		t.Error("after a reload there is another bound")
	}
}

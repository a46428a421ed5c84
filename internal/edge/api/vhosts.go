package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/definitions"
	"bartleby.mq/internal/run/office"
	"bartleby.mq/internal/run/partition"
)

// vhostInfo is a virtual host at one moment.
type vhostInfo struct {
	name        string
	metadata    topology.Metadata
	defaultType topology.QueueType
	profile     deadletter.Profile
	queues      []broker.QueueInfo
	exchanges   []*broker.ExchangeStats
}

// describeVHost: everything is locked for reading.
func (s *server) describeVHost(state *topology.State, v *topology.VHost) vhostInfo {
	i := vhostInfo{name: string(v.Name), metadata: v.Metadata, defaultType: state.DefaultQueueType(v), profile: v.Profile()}
	v.EachQueue(func(q *topology.Queue) { i.queues = append(i.queues, broker.Describe(q)) })
	v.EachExchange(func(x *topology.Exchange) { i.exchanges = append(i.exchanges, s.b.ExchangeStats(x)) })
	return i
}

func (s *server) listVHosts(r *request) (any, error) {
	var infos []vhostInfo
	s.b.Read(func(state *topology.State, u *auth.Users) {
		for _, v := range state.VHosts() {
			if r.may(monitoring) || r.visible.Sees(u, v.Name) {
				infos = append(infos, s.describeVHost(state, v))
			}
		}
	})
	return listOf(infos, func(i vhostInfo) string { return i.name }, r.showVHost), nil
}

func (s *server) getVHost(r *request) (any, error) {
	var info vhostInfo
	found := false
	s.b.Read(func(state *topology.State, _ *auth.Users) {
		if v, ok := state.VHost(r.vhost()); ok {
			info, found = s.describeVHost(state, v), true
		}
	})
	if !found {
		return nil, notFound
	}
	object := r.showVHost(info)
	delete(object["metadata"].(map[string]any), "protected_from_deletion") // in lists only
	return object, nil
}

func (r *request) showVHost(i vhostInfo) map[string]any {
	s, sp := r.s, r.spans()
	tags := i.metadata.Tags
	if tags == nil {
		tags = []string{}
	}
	total := partition.Counts{}
	for _, q := range i.queues {
		addCounts(&total, s.b.Counts(q))
	}
	object := map[string]any{
		"name": i.name, "description": i.metadata.Description, "tags": tags, "default_queue_type": string(i.defaultType),
		"protected_from_deletion": i.metadata.Protected, "tracing": i.metadata.Tracing,
		"metadata": map[string]any{
			"description": i.metadata.Description, "tags": tags, "default_queue_type": string(i.defaultType),
			"protected_from_deletion": i.metadata.Protected,
		},
		"cluster_state": map[string]any{s.NodeName: "running"}, "profile": string(i.profile),
	}
	if s.b.Strict && !i.metadata.Protected {
		delete(object["metadata"].(map[string]any), "protected_from_deletion")
	}
	if !s.b.Strict {
		object["default_dead_letter"], object["lenient_declarations"] = i.metadata.DefaultDeadLetter, i.metadata.Lenient
	}
	if r.withoutStatistics() {
		return object
	}
	name := "vhost\x00" + i.name
	if s.b.Strict {
		sp.lengths = sp.rates // RabbitMQ reads this span here
	}
	if !s.b.Strict || len(i.queues) > 0 {
		s.putLengths(object, name, sp, &total)
	}
	published, dropped, returned := uint64(0), uint64(0), uint64(0)
	for _, x := range i.exchanges {
		published += x.In.Load()
		dropped += x.Dropped.Load()
		returned += x.Returned.Load()
	}
	s.putStats(object, name, sp, false, publishes(published, total.Stats.Confirmed, returned, dropped), deliveries(&total.Stats))
	traffic, connected := map[string]float64{"recv_oct": 0, "send_oct": 0}, false
	for _, c := range s.b.Connections() {
		if client := c.Client(); client != nil && string(c.VHost) == i.name {
			st := client.Status()
			connected = true
			traffic["recv_oct"] += float64(st.ReceivedBytes)
			traffic["send_oct"] += float64(st.SentBytes)
		}
	}
	if !s.b.Strict || connected {
		s.history.put(object, name+"\x00traffic", sp.data, traffic)
	}
	return object
}

// withoutStatistics says whether the answer has virtual hosts without statistics: RabbitMQ leaves them out of the list, too, where the
// columns do not need them, although it then shows the other columns all the same.
func (r *request) withoutStatistics() bool {
	if r.without() {
		return true
	}
	query := r.URL.Query()
	return r.s.b.Strict && r.rt.pattern == "vhosts" && query.Has("columns") && !query.Has("page") && basicVHostColumns(query.Get("columns")) &&
		basicVHostColumns(query.Get("sort"))
}

// basicVHostColumns says whether the columns are those of virtual hosts that need no statistics in RabbitMQ.
func basicVHostColumns(list string) bool {
	for _, column := range strings.Split(list, ",") {
		if first, _, _ := strings.Cut(column, "."); first != "" && first != "name" && first != "tracing" && first != "pid" {
			return false
		}
	}
	return true
}

func (s *server) putVHost(r *request) (any, error) {
	var m topology.Metadata
	var err error
	if m.Description, err = r.text("description"); err != nil {
		return nil, err
	}
	if m.Tags, err = definitions.Tags(r.body["tags"]); err != nil {
		return nil, err
	}
	queueType, err := r.text("default_queue_type")
	if err != nil {
		return nil, err
	}
	if queueType != "undefined" { // as RabbitMQ's own exports say
		m.DefaultQueueType = topology.QueueType(queueType)
	}
	profile, err := r.text("profile")
	if err != nil {
		return nil, err
	}
	m.Profile = deadletter.Profile(profile)
	if m.DefaultDeadLetter, err = r.text("default_dead_letter"); err != nil {
		return nil, err
	}
	if m.Lenient, err = r.boolean("lenient_declarations"); err != nil {
		return nil, err
	}
	if m.Tracing, err = r.boolean("tracing"); err != nil {
		return nil, err
	}
	if m.Protected, err = r.boolean("protected_from_deletion"); err != nil {
		return nil, err
	}
	change := declare.All(m)
	for key, unnamed := range map[string]func(){ // what the request does not name stays
		"description":             func() { change.Description = nil },
		"tags":                    func() { change.Tags = nil },
		"default_queue_type":      func() { change.DefaultQueueType = nil },
		"default_dead_letter":     func() { change.DefaultDeadLetter = nil },
		"lenient_declarations":    func() { change.Lenient = nil },
		"tracing":                 func() { change.Tracing = nil },
		"protected_from_deletion": func() { change.Protected = nil },
	} {
		if _, named := r.body[key]; !named {
			unnamed()
		}
	}
	if s.b.Strict {
		change.Protected = nil // there it is set by its own route only
	}
	did, err := r.admin().Do(declare.PutVHost{Name: r.vhost(), Change: change})
	before, after := did.Before, did.After
	if s.Office != nil && err == nil && (before.DefaultDeadLetter != after.DefaultDeadLetter || before.Lenient != after.Lenient) {
		detail, _ := json.Marshal(map[string]any{"default_dead_letter": after.DefaultDeadLetter, "lenient_declarations": after.Lenient}) // never fails
		s.Office.Record(office.Act{Actor: r.actor(), What: "vhost.changed", VHost: string(r.vhost()), Object: string(r.vhost()), Detail: string(detail)})
	}
	return putDone(did.Created, err)
}

func (s *server) deleteVHost(r *request) (any, error) {
	_, err := r.admin().Do(declare.DeleteVHost{Name: r.vhost()})
	if f := asFailureOrNil(err); f != nil && f.status == http.StatusNotFound {
		return nil, notFound
	}
	return nil, err
}

// startVHost: a virtual host of one node always runs.
func (s *server) startVHost(r *request) (any, error) {
	if err := s.mustVHost(r.vhost()); err != nil {
		return nil, err
	}
	if node := r.params["node"]; node != s.NodeName {
		return nil, badRequest("Unknown node: " + node)
	}
	return nil, nil
}

func (s *server) protectVHost(r *request) (any, error) {
	protect := r.Method == http.MethodPost
	if err := s.mustVHost(r.vhost()); err != nil {
		if protect {
			return nil, &failure{http.StatusNotFound, "not_found", fmt.Sprintf("Cannot enable deletion protection of virtual host '%s' because it does not exist", r.vhost())}
		}
		return nil, notFound
	}
	return r.set(declare.ProtectVHost{Name: r.vhost(), On: protect})
}

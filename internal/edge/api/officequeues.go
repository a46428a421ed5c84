package api

import (
	"encoding/json"

	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/office"
)

// What a change of arguments asks, and what it answers: the arguments that hold, and those of the declaration.
type (
	argumentsAsked struct {
		Set   map[string]any `json:"set,omitempty"`
		Unset []string       `json:"unset,omitempty"`
	}
	argumentsAnswer struct {
		Now      map[string]any `json:"arguments"`
		Declared map[string]any `json:"declared_arguments"`
	}
)

// shownBreaker is the breaker of a queue as its object has it, and with Was as the answer to its close.
type shownBreaker struct {
	State   string  `json:"state"`
	UntilMS *int64  `json:"until_ms"`
	Why     *string `json:"why"`
	Was     string  `json:"was,omitempty"`
}

func showBreaker(b queue.Broken) shownBreaker {
	s := shownBreaker{State: b.State.String()}
	if b.State == queue.BreakerOpen {
		s.UntilMS = &b.Until
	}
	if why := broker.WhyBroken(b); why != "" {
		s.Why = &why
	}
	return s
}

// officeQueueRoutes change queues for the Dead Letter Office.
func (s *server) officeQueueRoutes() []route {
	return []route{
		{"PUT", "office/queues/{vhost}/{queue}/arguments", policies, s.putQueueArguments},
		{"POST", "office/queues/{vhost}/{queue}/breaker/close", managing, s.closeBreaker},
	}
}

// closeBreaker closes the breaker of a queue by hand. One that is closed already stays so.
func (s *server) closeBreaker(r *request) (any, error) {
	if _, err := r.findQueue(); err != nil {
		return nil, err
	}
	before, err := r.link().CloseBreaker(r.queueName())
	if err != nil {
		return nil, err
	}
	if s.Office != nil && before.State != queue.BreakerClosed {
		s.Office.Record(office.Act{Actor: r.actor(), What: "breaker.closed", VHost: string(r.vhost()), Object: string(r.queueName()), Count: 1, Detail: before.State.String()})
	}
	return shownBreaker{State: queue.BreakerClosed.String(), Was: before.State.String()}, nil
}

// putQueueArguments changes arguments of a queue. Arguments that the request does not name stay.
func (s *server) putQueueArguments(r *request) (any, error) {
	for key := range r.body {
		if key != "set" && key != "unset" {
			return nil, badRequest("unknown key '" + key + "'; the keys are: set, unset")
		}
	}
	object, err := r.object("set")
	if err != nil {
		return nil, err
	}
	set, err := topology.ParseArguments(object)
	if err != nil {
		return nil, badRequest(err.Error())
	}
	var unset []string
	list, ok := r.body["unset"].([]any)
	if r.body["unset"] != nil && !ok {
		return nil, badRequest("unset must be a list of arguments")
	}
	for _, v := range list {
		name, ok := v.(string)
		if !ok {
			return nil, badRequest("unset must be a list of arguments")
		}
		unset = append(unset, name)
	}
	if len(set)+len(unset) == 0 {
		return nil, badRequest("set or unset must name an argument")
	}
	if _, err := r.findQueue(); err != nil {
		return nil, err
	}
	r.did = append(r.did, "set", object, "unset", unset)
	now, declared, err := r.link().ChangeArguments(r.queueName(), set, unset)
	if err != nil {
		return nil, err
	}
	if s.Office != nil {
		detail, _ := json.Marshal(map[string]any{"set": object, "unset": unset}) // it came as JSON
		s.Office.Record(office.Act{Actor: r.actor(), What: "queue.arguments", VHost: string(r.vhost()), Object: string(r.queueName()), Count: 1, Detail: cutDetail(string(detail))})
	}
	return argumentsAnswer{topology.ArgumentsJSON(now), topology.ArgumentsJSON(declared)}, nil
}

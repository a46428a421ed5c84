package api

import (
	"encoding/json"

	"bartleby.mq/internal/core/topology"
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

// officeQueueRoutes change queues for the Dead Letter Office.
func (s *server) officeQueueRoutes() []route {
	return []route{
		{"PUT", "office/queues/{vhost}/{queue}/arguments", policies, s.putQueueArguments},
	}
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
